"""Which replicas have read which beginnings of prompts: bounded, and only a guess. Pure.

An engine keeps what it has computed of a prompt for the next one with the same beginning. It does
not tell what it keeps, so we remember what we sent. A prompt is cut into blocks of bytes; a block's
hash includes all before it, so one hash names a whole beginning.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container

BLOCK_BYTES = 1024  # of the request as JSON: about 250 tokens of English
# Where a prompt's blocks end, in units of BLOCK_BYTES: the further on, the larger they are, so that a
# long prompt is known to an eighth or better by a third of the entries.
BLOCK_ENDS = (*range(1, 9), *range(10, 17, 2), *range(20, 33, 4), *range(40, 65, 8))
MAX_BLOCKS = len(BLOCK_ENDS)
MAX_BYTES = BLOCK_ENDS[-1] * BLOCK_BYTES  # what comes after that does not count
MAX_INDEX_BLOCKS = 32_768  # of one deployment in one worker: about 12 MB
MAX_HOLDERS = 32  # replicas per block
_BYTES_PER_TOKEN = 4
_KV_SHARE = 0.5  # of an engine's KV cache that keeps old prompts; running requests take the rest


def blocks_of(prompt: bytes, *, salt: int = 0) -> tuple[int, ...]:
    """Return the chained hashes of the whole blocks of a prompt's raw bytes, the first first.

    ``salt`` keeps apart what engines keep apart, such as LoRA adapters. The hashes hold within one
    process only: they are Python's own, keyed by chance, so nobody outside can make two collide.
    """
    size = len(prompt) // BLOCK_BYTES
    blocks = []
    link = salt
    start = 0
    for unit in BLOCK_ENDS:
        if unit > size:
            break
        end = unit * BLOCK_BYTES
        link = hash((link, prompt[start:end]))
        blocks.append(link)
        start = end
    return tuple(blocks)


# By the number of blocks: how large each is, the last first.
_SPANS = tuple(
    tuple(
        end - begin
        for begin, end in reversed(list(zip((0, *BLOCK_ENDS), BLOCK_ENDS[:count], strict=False)))
    )
    for count in range(MAX_BLOCKS + 1)
)


class _Holder:
    """One replica, and how much it has read since we know it, in units of BLOCK_BYTES."""

    __slots__ = ("capacity_units", "read_units", "replica_id")

    def __init__(self, replica_id: str) -> None:
        self.replica_id = replica_id
        self.capacity_units: float = float("inf")  # that it can keep
        self.read_units = 0


class PrefixIndex:
    """Block hash to the replicas that have read up to there.

    What a replica has read long ago it has dropped: a block counts only until the replica has read
    as much as it can keep since then.
    """

    __slots__ = ("_blocks", "_holders", "_limit")

    def __init__(self, limit: int = MAX_INDEX_BLOCKS) -> None:
        self._limit = limit
        # Values: what the holder had read in all when it last read this block.
        self._blocks: OrderedDict[int, dict[_Holder, int]] = OrderedDict()
        self._holders: dict[str, _Holder] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, blocks: tuple[int, ...]) -> dict[str, int]:
        """Return how many leading units of ``blocks`` each replica has read; none: not there."""
        known = self._blocks
        if not blocks or blocks[0] not in known:
            return {}
        deepest = _find_last(known, blocks, len(blocks) - 1)
        last = known[blocks[deepest]]
        found = {}
        for holder in known[blocks[0]]:
            place = deepest if holder in last else self._find_last_read(holder, blocks, deepest)
            if holder.read_units - known[blocks[place]][holder] <= holder.capacity_units:
                found[holder.replica_id] = BLOCK_ENDS[place]
        return found

    def record(
        self, replica_id: str, blocks: tuple[int, ...], *, kv_capacity_tokens: int | None = None
    ) -> None:
        """``replica_id`` reads a prompt of these blocks."""
        if not blocks:
            return
        holder = self._holders.get(replica_id)
        if holder is None:
            holder = self._holders[replica_id] = _Holder(replica_id)
        if kv_capacity_tokens is not None:
            holder.capacity_units = kv_capacity_tokens * _KV_SHARE * _BYTES_PER_TOKEN / BLOCK_BYTES
        holder.capacity_units = max(holder.capacity_units, BLOCK_ENDS[len(blocks) - 1])
        known = self._blocks
        read_at = holder.read_units
        # The first last: a beginning outlives what follows it.
        for block, span in zip(reversed(blocks), _SPANS[len(blocks)], strict=True):
            readers = known.get(block)
            if readers is None:
                known[block] = {holder: read_at}
                holder.read_units += span
                continue
            known.move_to_end(block)
            if readers.pop(holder, None) is None:
                holder.read_units += span
                if len(readers) >= MAX_HOLDERS:
                    del readers[next(iter(readers))]
            readers[holder] = read_at  # at the end: the first is the one that read it longest ago
        while len(known) > self._limit:
            known.popitem(last=False)

    def forget(self, replica_id: str) -> None:
        """The replica has lost what it had read: it was restarted, slept or is gone. At once."""
        holder = self._holders.pop(replica_id, None)
        if holder is not None:
            holder.capacity_units = -1.0  # whatever still names it says nothing

    def _find_last_read(self, holder: _Holder, blocks: tuple[int, ...], end: int) -> int:
        """Return the last place before ``end`` up to which ``holder`` has read; the first it has."""
        known = self._blocks
        low, high = 0, end - 1
        while low < high:
            middle = (low + high + 1) // 2
            readers = known.get(blocks[middle])
            if readers is not None and holder in readers:
                low = middle
            else:
                high = middle - 1
        return low


def _find_last(known: Container[int], blocks: tuple[int, ...], end: int) -> int:
    """Return the last place up to ``end`` that is known; the first is, and none behind a gap."""
    low, high = 0, end
    while low < high:
        middle = (low + high + 1) // 2
        if blocks[middle] in known:
            low = middle
        else:
            high = middle - 1
    return low

"""The KV cache as blocks of 16 tokens: which are in use, and which can be found again. Pure.

As vLLM's block pool: a prompt's full blocks have names, each chained to the one before it, so an
equal name means an equal prompt up to there. A block that nobody uses stays findable until its
place is needed; the one that has been idle longest goes first, of one prompt the last block first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence

BLOCK_TOKENS = 16  # vLLM's default on GPUs


def chain_blocks(
    prompt: bytes | Sequence[int], units_per_block: int, salt: Hashable = None
) -> tuple[int, ...]:
    """Return the names of the full blocks of ``prompt``, the first block first.

    ``prompt``: token ids, with 16 units a block, or bytes, with as many as 16 tokens have. ``salt``:
    what else must be equal, such as the LoRA adapter. Names hold within one process.
    """
    names: list[int] = []
    name = hash(salt)
    for end in range(units_per_block, len(prompt) + 1, units_per_block):
        piece = prompt[end - units_per_block : end]
        name = hash((name, piece if isinstance(piece, bytes) else tuple(piece)))
        names.append(name)
    return tuple(names)


class KvCache:
    """A fixed number of blocks: named and in use, unnamed and in use, named and idle, or empty."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._holders: dict[int, int] = {}  # named and in use: by how many sequences
        self._idle: OrderedDict[int, None] = OrderedDict()  # the longest idle first
        self._unnamed = 0

    @property
    def used(self) -> int:
        """Blocks in use."""
        return len(self._holders) + self._unnamed

    @property
    def idle(self) -> int:
        """Blocks that nobody uses and that can be found again."""
        return len(self._idle)

    def count_found(self, names: Sequence[int]) -> int:
        """Return how many of ``names``, from the first on without a gap, are there."""
        holders, idle = self._holders, self._idle
        for found, name in enumerate(names):
            if name not in holders and name not in idle:
                return found
        return len(names)

    def take(self, found: Sequence[int], new: int) -> bool:
        """Use ``found`` blocks, which are there, and ``new`` unnamed ones; all of them or none."""
        holders = self._holders
        woken = sum(name not in holders for name in found)
        if self.used + woken + new > self.blocks:
            return False
        for name in found:
            self._idle.pop(name, None)
            holders[name] = holders.get(name, 0) + 1
        self._unnamed += new
        while self.used + len(self._idle) > self.blocks:
            self._idle.popitem(last=False)
        return True

    def name_one(self, name: int) -> bool:
        """Give an unnamed block in use its name; not done when another one in use has it."""
        if name in self._holders:
            return False
        self._idle.pop(name, None)
        self._holders[name] = 1
        self._unnamed -= 1
        return True

    def release(self, names: Sequence[int], unnamed: int) -> None:
        """Stop using what one sequence used; named blocks that nobody else uses become idle."""
        self._unnamed -= unnamed
        for name in reversed(names):
            left = self._holders[name] - 1
            if left:
                self._holders[name] = left
            else:
                del self._holders[name]
                self._idle[name] = None

    def forget(self) -> None:
        """Empty all idle blocks."""
        self._idle.clear()

    def idle_names(self) -> Iterable[int]:
        """Return the names of idle blocks, in the order in which they would go."""
        return self._idle.keys()

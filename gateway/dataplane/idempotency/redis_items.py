"""What lies in Redis of one entry: its keys, its scripts, and the items of a reply, sealed.

All keys share one hash tag, as all of ours do. ``owner`` is a hash: who runs or ran the request, and the
request's digest. It expires with the owner's lease, or when a kept reply's time is over. ``reply``
is a list of the owner's own: head, pieces and end, in order.

One key more tells a Redis that has lost its memory (emptied, restarted without a disk) from one in which
nobody has a key: ``memory`` is set by the first claim that finds it gone, and has the moment. Claims wait
then until owners, who look at it all the time, have put back what they run. An owner whose entry is gone
puts it back under its next token, with another list: nothing is ever sealed twice under one token.

Redis may write what it holds to a disk (the embedded one has an append-only file), and no answer
may be on one. So items are sealed (ChaCha20-Poly1305, RFC 8439) with a key made of what only the
request itself tells, its Idempotency-Key, endpoint and body, and of the owner's random token; the
nonce is the item's place.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from gateway.dataplane.idempotency.recording import End, Head
from gateway.dataplane.idempotency.store import OnceRequest

ITEM_BYTES = 256 * 1024  # of a piece at most: sealing one takes some milliseconds
_PREFIX = "{forebay}:once:"
PROBE_KEY = f"{_PREFIX}probe"  # never set; who has it has all the others
MEMORY_KEY = f"{_PREFIX}memory"
PUT_BACK_SECONDS = 0.4  # so long may owners take to put back what a Redis has lost
_MEMORY_SECONDS = 604_800  # without a claim; a Redis that forgets it makes one claim wait
RUN_CHARACTERS = 32  # of a token: the same in all tokens of one run

_HEAD, _DATA, _END = b"h", b"d", b"e"

# They are sent whole each time: a few hundred bytes, and no script cache that could be empty.
# They answer: the owner's token and the request's digest, and the memory's name; without an owner for how
# many milliseconds to wait before asking again.
CLAIM = f"""
local found = redis.call('HMGET', KEYS[1], 'owner', 'digest')
local memory = redis.call('GET', KEYS[2])
if found[1] then return {{found[1], found[2], memory or ''}} end
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
if not memory or tonumber(memory) > now then
  memory = string.format('%.0f', now)
  redis.call('SET', KEYS[2], memory)
end
redis.call('EXPIRE', KEYS[2], {_MEMORY_SECONDS})
local rest = tonumber(memory) + {int(PUT_BACK_SECONDS * 1000)} - now
if rest > 0 then return {{'', string.format('%.0f', rest), memory}} end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'digest', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {{ARGV[1], ARGV[2], memory}}
"""
# Answers 1; 0: another has the key; -1: it is gone, or items before these are. With a digest it is taken
# anew by the same run. May be sent twice: items have places, and what is there already stays as it is.
PUBLISH = f"""
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner ~= ARGV[1] then
  if owner and string.sub(owner, 1, {RUN_CHARACTERS}) ~= string.sub(ARGV[1], 1, {RUN_CHARACTERS})
  then return 0 end
  if ARGV[4] == '' or (owner and owner > ARGV[1]) then return -1 end
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'digest', ARGV[4])
end
local known = redis.call('LLEN', KEYS[2]) - tonumber(ARGV[5])
if known < 0 then return -1 end
for number = 6 + known, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[number]) end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
if ARGV[2] == 'freed' then
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'state', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
"""
DROP = """
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then redis.call('DEL', KEYS[1]) end
return redis.call('UNLINK', KEYS[2])
"""


@dataclass(frozen=True, slots=True)
class EntryKeys:
    """The keys of one owner's entry."""

    owner: str
    reply: str


def entry_keys(name: str, token: str) -> EntryKeys:
    """Return the keys of the entry ``name`` as ``token`` owns it."""
    return EntryKeys(f"{_PREFIX}{name}", f"{_PREFIX}{name}:{token}")


class Seal:
    """Seals and opens the items of one owner's reply."""

    __slots__ = ("_cipher",)

    def __init__(self, request: OnceRequest, token: str) -> None:
        key = hashlib.sha256(request.seal + token.encode()).digest()
        self._cipher = ChaCha20Poly1305(key)  # used for one reply, so no nonce comes twice

    def close(self, item: bytes, place: int) -> bytes:
        """Return ``item`` sealed; ``place`` counts from 0."""
        return self._cipher.encrypt(place.to_bytes(12, "big"), item, None)

    def open(self, sealed: bytes, place: int) -> bytes:
        """Return what was sealed. Raises ValueError for what is none of ours or was changed."""
        try:
            return self._cipher.decrypt(place.to_bytes(12, "big"), sealed, None)
        except InvalidTag:
            raise ValueError("an item of a stored reply cannot be opened") from None


def head_item(head: Head) -> bytes:
    """Return a reply's head as an item."""
    return _HEAD + msgspec.msgpack.encode((head.status, head.headers, head.is_stream))


def data_items(pieces: list[bytes]) -> list[bytes]:
    """Return pieces of a body as items."""
    if sum(map(len, pieces)) <= ITEM_BYTES:
        return [b"".join([_DATA, *pieces])] if pieces else []
    body = b"".join(pieces)
    return [_DATA + body[start : start + ITEM_BYTES] for start in range(0, len(body), ITEM_BYTES)]


def end_item(end: End) -> bytes:
    """Return the end as an item."""
    return _END + end.value.encode()


def read_item(item: bytes) -> Head | bytes | End:
    """Return what an opened item is. Raises ValueError for what is none of ours."""
    kind, rest = item[:1], item[1:]
    if kind == _DATA:
        return rest
    if kind == _END:
        return End(rest.decode())
    if kind == _HEAD:
        status, headers, is_stream = msgspec.msgpack.decode(rest, type=tuple[int, bytes, bool])
        return Head(status, headers, is_stream)
    raise ValueError("an item of a stored reply is of no known kind")

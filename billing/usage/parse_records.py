"""Bytes of one journal segment → records. Pure; knows damage from "not written yet".

A segment is preallocated with zeros and written from its start, so a zero byte where a record
should begin is the end so far. Line: ``%08x %s\\n`` of CRC-32 and JSON payload.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import msgspec

from billing.usage.event import JournalRecord

_CHECKSUM_DIGITS = 8
_PAYLOAD_START = _CHECKSUM_DIGITS + 1
_SPACE = 0x20
_NEWLINE = b"\n"
_ZERO = 0
_KEPT_BYTES = 4096  # of damage, for the eye that looks at the dead letter

_decode = msgspec.json.Decoder(JournalRecord).decode


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no record, where records should be."""

    offset: int
    kept: bytes  # at most 4096 of them, zeros stripped
    detail: str


@dataclass(slots=True)
class ParsedRecords:
    """What one call found: records with their byte offsets, damage, and where to go on.

    ``is_exhausted``: nothing more can follow in these bytes (only said of final bytes).
    ``suspect_offset``: in bytes that are still being written, a whole line that is no record; it
    may be half of a write, so the caller looks again before it calls it damage.
    """

    next_offset: int
    records: list[tuple[int, JournalRecord]] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    is_exhausted: bool = False
    suspect_offset: int | None = None


def parse_growing(buffer: bytes, *, base: int, limit: int) -> ParsedRecords:
    """Parse the tail of a segment whose writer lives, up to the first thing not written whole.

    ``base`` is the segment offset of ``buffer[0]``, where a record begins; at most ``limit``
    records are taken.
    """
    records, position = _take_good(buffer, 0, base, limit)
    suspect = None
    if (
        len(records) < limit
        and position < len(buffer)
        and buffer[position] != _ZERO
        and buffer.find(_NEWLINE, position) >= 0
    ):
        suspect = base + position
    return ParsedRecords(base + position, records, suspect_offset=suspect)


def parse_final(
    buffer: bytes, *, start: int, base: int, limit: int, is_torn_end_expected: bool
) -> ParsedRecords:
    """Parse bytes that will not change any more, from ``buffer[start]``, skipping damage.

    ``is_torn_end_expected``: this is the last segment of a dead writer, so that one broken line
    at the very end is a torn write, which was never acknowledged, and no damage.
    """
    parsed = ParsedRecords(base + start)
    position = start
    while len(parsed.records) < limit:
        records, position = _take_good(buffer, position, base, limit - len(parsed.records))
        parsed.records += records
        if len(parsed.records) >= limit:
            break
        begin = _skip_zeros(buffer, position)
        if begin >= len(buffer):
            parsed.is_exhausted = True
            position = len(buffer)
            break
        if begin > position and _take_good(buffer, begin, base, 1)[0]:
            parsed.damages.append(Damage(base + position, b"", "a hole of zeros inside a segment"))
            position = begin
            continue
        position = _skip_broken_line(buffer, begin, base, parsed, is_torn_end_expected)
    parsed.next_offset = base + position
    return parsed


def accept_suspect(buffer: bytes, *, base: int) -> ParsedRecords:
    """Call the broken line at ``buffer[0]`` damage and step over it (a living writer's segment)."""
    parsed = ParsedRecords(base)
    parsed.next_offset = base + _skip_broken_line(buffer, 0, base, parsed, False)
    return parsed


def _take_good(
    buffer: bytes, position: int, base: int, limit: int
) -> tuple[list[tuple[int, JournalRecord]], int]:
    """Return the unbroken run of records from ``position`` and where it ends."""
    records: list[tuple[int, JournalRecord]] = []
    find, checksum_of, decode = buffer.find, zlib.crc32, _decode
    for _ in range(limit):
        end = find(_NEWLINE, position)
        if end < 0:
            break
        payload = buffer[position + _PAYLOAD_START : end]
        try:
            checksum = int(buffer[position : position + _CHECKSUM_DIGITS], 16)
            if checksum != checksum_of(payload) or buffer[position + _CHECKSUM_DIGITS] != _SPACE:
                break
            records.append((base + position, decode(payload)))
        except ValueError:  # no hexadecimal digits, or (msgspec.DecodeError) a foreign payload
            break
        position = end + 1
    return records, position


def _skip_zeros(buffer: bytes, position: int) -> int:
    if position >= len(buffer) or buffer[position] != _ZERO:
        return position
    rest = buffer[position:].lstrip(b"\0")
    return len(buffer) - len(rest)


def _skip_broken_line(
    buffer: bytes, begin: int, base: int, parsed: ParsedRecords, is_torn_end_expected: bool
) -> int:
    """Note the broken line at ``begin`` as damage (or a torn write) and return where to go on."""
    newline = buffer.find(_NEWLINE, begin)
    end = len(buffer) if newline < 0 else newline + 1
    if is_torn_end_expected and _skip_zeros(buffer, end) >= len(buffer):
        return len(buffer)
    line = buffer[begin:end]
    parsed.damages.append(
        Damage(base + begin, line.strip(b"\0\n")[:_KEPT_BYTES], _why_broken(line))
    )
    return end


def _why_broken(line: bytes) -> str:
    if not line.endswith(_NEWLINE):
        return "a record without its end"
    payload = line[_PAYLOAD_START:-1]
    if line[:_CHECKSUM_DIGITS] != b"%08x" % zlib.crc32(payload):
        return "a record whose checksum does not fit"
    try:
        _decode(payload)
    except msgspec.MsgspecError as error:
        return f"a whole record that we cannot read: {error}"
    return "a record in an unknown form"

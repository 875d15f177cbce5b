"""The segment parser under torn writes, truncation, damage and holes at any byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from billing.usage.event import CloseRecord, OpenRecord, TokenUsage
from billing.usage.parse_records import parse_final, parse_growing
from tests.factories.journals import encode_line, make_close, make_identity, make_progress

ALL = 10**9


def lines_of(count: int) -> list[bytes]:
    lines = []
    for number in range(count):
        identity = make_identity(request_id=f"req_{number:032x}", route=f"modèle-{number}")
        if number % 3 == 0:
            lines.append(encode_line(OpenRecord(identity)))
        elif number % 3 == 1:
            lines.append(encode_line(make_progress(identity, TokenUsage(number, None, number))))
        else:
            lines.append(encode_line(make_close(identity)))
    return lines


LINES = lines_of(9)
DATA = b"".join(LINES)
ENDS = [sum(map(len, LINES[: number + 1])) for number in range(len(LINES))]


def whole_records(size: int) -> int:
    return sum(end <= size for end in ENDS)


@given(st.integers(0, len(DATA)), st.integers(0, 64))
def test_a_growing_segment_shows_exactly_its_whole_records(cut: int, zeros: int) -> None:
    parsed = parse_growing(DATA[:cut] + bytes(zeros), base=0, limit=ALL)
    count = whole_records(cut)
    assert len(parsed.records) == count
    assert parsed.next_offset == (ENDS[count - 1] if count else 0)
    assert not parsed.damages
    assert parsed.suspect_offset is None


@given(st.integers(0, len(DATA)), st.integers(0, 64), st.booleans())
def test_a_torn_end_is_silent_only_where_a_writer_died(cut: int, zeros: int, is_dead: bool) -> None:
    parsed = parse_final(
        DATA[:cut] + bytes(zeros), start=0, base=0, limit=ALL, is_torn_end_expected=is_dead
    )
    count = whole_records(cut)
    is_torn = cut > 0 and cut not in ENDS
    assert len(parsed.records) == count
    assert parsed.is_exhausted
    assert len(parsed.damages) == (1 if is_torn and not is_dead else 0)


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255), st.booleans())
def test_one_changed_byte_loses_at_most_two_records_and_is_told(
    position: int, change: int, is_dead: bool
) -> None:
    damaged = bytearray(DATA)
    damaged[position] ^= change
    parsed = parse_final(
        bytes(damaged) + bytes(100), start=0, base=0, limit=ALL, is_torn_end_expected=is_dead
    )
    good = {record for _, record in parsed.records}
    originals = {r for _, r in parse_growing(DATA, base=0, limit=ALL).records}
    assert good <= originals  # nothing is made up
    assert len(good) >= len(LINES) - 2  # a lost newline joins two lines
    is_in_last_line = position >= ENDS[-2] - 1
    assert parsed.damages or len(good) == len(LINES) or (is_dead and is_in_last_line)
    assert parsed.is_exhausted


@given(st.integers(0, len(DATA) - 1), st.integers(1, 600))
def test_a_hole_of_zeros_is_stepped_over_and_told(begin: int, size: int) -> None:
    end = min(begin + size, len(DATA))
    damaged = DATA[:begin] + bytes(end - begin) + DATA[end:]
    parsed = parse_final(damaged, start=0, base=0, limit=ALL, is_torn_end_expected=False)
    starts = [0, *ENDS]
    untouched = sum(
        1 for number in range(len(LINES)) if starts[number + 1] <= begin or starts[number] >= end
    )
    # A hole that eats a newline also costs the line that follows it.
    assert untouched - 1 <= len(parsed.records) <= untouched
    is_tail_gone = end == len(DATA) and begin in starts
    assert bool(parsed.damages) is not is_tail_gone
    assert parsed.is_exhausted


@given(st.lists(st.integers(1, 4), min_size=1, max_size=20))
def test_reading_in_any_steps_gives_the_same_records(limits: list[int]) -> None:
    seen = []
    offset = 0
    for limit in [*limits, ALL]:
        parsed = parse_final(
            DATA + bytes(50), start=offset, base=0, limit=limit, is_torn_end_expected=True
        )
        seen += parsed.records
        offset = parsed.next_offset
    assert seen == parse_growing(DATA, base=0, limit=ALL).records


def test_a_valid_line_of_a_foreign_kind_is_damage_and_kept() -> None:
    import zlib

    payload = b'["x",1]'
    line = b"%08x %s\n" % (zlib.crc32(payload), payload)
    parsed = parse_final(
        LINES[0] + line + LINES[2], start=0, base=0, limit=ALL, is_torn_end_expected=True
    )
    assert [type(record) for _, record in parsed.records] == [OpenRecord, CloseRecord]
    assert len(parsed.damages) == 1
    assert parsed.damages[0].kept == line.rstrip(b"\n")
    assert "cannot read" in parsed.damages[0].detail

"""Times that commands read from the database look like those that the control API answers."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from gateway.cli.billing import _plain


def test_a_dead_letters_time_is_written_as_the_control_api_does() -> None:
    zone = timezone(timedelta(hours=5, minutes=45))
    assert _plain(datetime(2026, 11, 30, 5, 45, tzinfo=zone)) == "2026-11-30T00:00:00Z"
    assert [_plain(value) for value in (None, 7, "x")] == [None, 7, "x"]

"""What a record does not say of itself: requests without a price, hours before the first use. Pure."""

from __future__ import annotations

from datetime import UTC

from billing.costing.recorded_load import RecordedLoad

_OF_SEVERAL = "requests have no price: nothing of them"


def list_load_notes(load: RecordedLoad, route: str | None) -> tuple[str, ...]:
    """Return the notes on one route's hours, or on those of all together."""
    rows = [row for row in load.rows if route in (None, row.route)]
    notes = []
    unpriced = sum(row.unpriced_requests for row in rows)
    if unpriced:
        which = "request has no price: nothing of it" if unpriced == 1 else _OF_SEVERAL
        notes.append(f"{unpriced} {which} is in what was charged")
    used_at = min((row.hour.hour_at for row in rows), default=None)
    begin = load.span[0]
    if used_at is not None and begin is not None and used_at > begin:
        notes.append(
            f"first used {used_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC; the hours before count as "
            "hours of nothing, unless the report begins there"
        )
    return tuple(notes)

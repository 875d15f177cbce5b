"""The promise ``admitted = settled + open + voided``, as figures that anyone can look at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from billing.usage.models import JournalPosition


@dataclass(frozen=True, slots=True)
class JournalCounts:
    """Counts of one journal, or of all together (``journal_id`` "").

    ``admitted = settled + voided + open + duplicates + set_aside``; the last two are 0 unless
    something went wrong (see :class:`billing.usage.models.JournalPosition`).
    """

    journal_id: str
    admitted: int
    settled: int
    voided: int
    open: int
    duplicates: int
    set_aside: int
    corrupt_records: int
    updated_at: datetime | None
    finished_at: datetime | None


async def read_journal_counts(session: AsyncSession) -> list[JournalCounts]:
    """Return the counts of every journal ever read, newest first."""
    positions = await session.scalars(
        select(JournalPosition).order_by(JournalPosition.journal_id.desc())
    )
    return [
        JournalCounts(
            journal_id=position.journal_id,
            admitted=position.opened,
            settled=position.settled,
            voided=position.voided,
            open=position.opened
            - position.settled
            - position.voided
            - position.duplicates
            - position.set_aside,
            duplicates=position.duplicates,
            set_aside=position.set_aside,
            corrupt_records=position.corrupt_records,
            updated_at=position.updated_at,
            finished_at=position.finished_at,
        )
        for position in positions
    ]


def total_counts(journals: list[JournalCounts]) -> JournalCounts:
    """Return the sums over ``journals``."""
    return JournalCounts(
        journal_id="",
        admitted=sum(counts.admitted for counts in journals),
        settled=sum(counts.settled for counts in journals),
        voided=sum(counts.voided for counts in journals),
        open=sum(counts.open for counts in journals),
        duplicates=sum(counts.duplicates for counts in journals),
        set_aside=sum(counts.set_aside for counts in journals),
        corrupt_records=sum(counts.corrupt_records for counts in journals),
        updated_at=max((c.updated_at for c in journals if c.updated_at), default=None),
        finished_at=None,
    )

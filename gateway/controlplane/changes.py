"""The version of everything that a Snapshot holds: grows in every transaction that changes it.

A service that changes such a thing calls :func:`record_change`; the transaction that it belongs to
takes the next version just before it commits. That update's row lock puts the commits of all
changing transactions in the order of their versions, so a Snapshot read at version n holds every
change up to n.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, CheckConstraint, cast, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base

_CHANGED = "forebay_is_config_changed"


class ConfigVersion(Base):
    """The single row whose ``version`` grows in every transaction that changes a Snapshot."""

    __tablename__ = "config_version"
    __table_args__ = (CheckConstraint("is_single", name="single_row"),)

    is_single: Mapped[bool] = mapped_column(Boolean, primary_key=True, server_default=text("true"))
    version: Mapped[int] = mapped_column(BigInteger)


def record_change(session: AsyncSession) -> None:
    """Note that the session's transaction changes what a Snapshot holds."""
    session.info[_CHANGED] = True


def is_changed(session: AsyncSession) -> bool:
    """Say whether the session's transaction changes what a Snapshot holds."""
    return bool(session.info.get(_CHANGED))


async def take_next_version(session: AsyncSession, *, past: int = 0) -> int:
    """Raise the version above ``past`` and return it; others that do so wait for our commit.

    The clock in microseconds is a floor: a database restored from a backup, whose versions were
    once published already, is past them with its first change.
    """
    now_us = cast(func.extract("epoch", func.clock_timestamp()) * 1_000_000, BigInteger)
    version = await session.scalar(
        update(ConfigVersion)
        .values(version=func.greatest(ConfigVersion.version + 1, now_us, past + 1))
        .returning(ConfigVersion.version)
        .execution_options(synchronize_session=False)
    )
    if version is None:
        raise RuntimeError("the table config_version is empty; it must hold its one row")
    return version


async def read_version(session: AsyncSession) -> int:
    """Return the version of the last committed change."""
    return (await session.execute(select(ConfigVersion.version))).scalar_one()

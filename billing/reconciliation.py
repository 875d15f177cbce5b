"""Proves that events = rollups = ledger = spend of budgets, and credit, in one snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg.rows import namedtuple_row

from billing import reconciliation_queries as queries
from billing.budgets.prove_spend import SpendProof, prove_spend
from billing.clock import Clock, utc_now
from billing.db import connect
from billing.ledger.post import post_pending
from billing.ledger.prove_credit import CreditProof, prove_credit
from billing.money import EXACT, format_amount


@dataclass(frozen=True, slots=True)
class VerifyLine:
    """One thing that was checked: what, the figures as text by name, and whether they agree."""

    label: str
    figures: tuple[tuple[str, str], ...]
    is_ok: bool

    def __str__(self) -> str:
        """Return the line as a person reads it."""
        mark = "ok  " if self.is_ok else "FAIL"
        return f"{mark} {self.label}: " + ", ".join(f"{name} {text}" for name, text in self.figures)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The whole proof. ``differences`` names up to 20 project hours, and as many windows of
    budgets, that do not agree.

    ``dead_letters`` (unresolved, by reason) do not make it unclean: they are known, and their
    events are in no sum of money.
    """

    lines: tuple[VerifyLine, ...]
    dead_letters: tuple[tuple[str, int], ...]
    differences: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether every line agrees."""
        return all(line.is_ok for line in self.lines)


def verify(database_url: str, *, post_first: bool = True, clock: Clock = utc_now) -> VerifyReport:
    """Check the books of the whole database and return the figures.

    ``post_first`` posts what is owed before looking, so that nothing is pending unless requests
    are settled at this very moment; what is pending is shown and counted, never left out. Reads
    one REPEATABLE READ snapshot, with sums done by PostgreSQL, so live traffic does not disturb it.
    """
    if post_first:
        post_pending(database_url, clock=clock)
    with connect(database_url, application_name="forebay-verify") as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            return _check(connection, now=clock())


def _check(connection: psycopg.Connection[Any], *, now: datetime) -> VerifyReport:
    cursor = connection.cursor(row_factory=namedtuple_row)

    def rows(query: str) -> list[Any]:
        return cursor.execute(query.encode()).fetchall()

    totals = rows(queries.GROUP_TOTALS)
    spend = prove_spend(connection)
    lines = [
        *_rating_lines(rows(queries.RERATE)),
        *map(_shadow_line, rows(queries.SHADOW_RERATE)),
        *(line for total in totals for line in _sum_lines(total)),
        _ledger_line(rows(queries.LEDGER)[0]),
        _budget_line(spend),
        *map(_credit_line, prove_credit(connection, now=now)),
        *_journal_lines(rows(queries.JOURNALS)[0]),
        _zero_line("events stored twice", rows(queries.DUPLICATES)[0][0]),
        _zero_line("unpriced events without a dead letter", rows(queries.SILENT_UNPRICED)[0][0]),
    ]
    differing = rows(queries.GROUP_DIFFERENCES) if any(t.different for t in totals) else []
    return VerifyReport(
        lines=tuple(lines),
        dead_letters=tuple((row[0], row[1]) for row in rows(queries.DEAD_LETTERS)),
        differences=(*map(_difference_text, differing), *spend.differences),
    )


def _rating_lines(currencies: list[Any]) -> list[VerifyLine]:
    lines = []
    for row in currencies:
        is_ok = row.charge == row.again and not row.different and not row.misdated
        figures = (
            ("events", str(row.events)),
            ("charged", format_amount(row.charge)),
            ("rated again", format_amount(row.again)),
            ("differing events", str(row.different)),
            ("with a price of another time or currency", str(row.misdated)),
            ("unpriced", str(row.unpriced)),
        )
        lines.append(VerifyLine(f"rating {row.currency}", figures, is_ok))
    return lines


def _shadow_line(row: Any) -> VerifyLine:
    """Return the line of shadow calls in one currency: rated right, and on nobody's invoice."""
    figures = (
        ("calls", str(row.calls)),
        ("cost", format_amount(row.charge)),
        ("rated again", format_amount(row.again)),
        ("differing calls", str(row.different)),
        ("with a price of another time or currency", str(row.misdated)),
        ("also charged to a customer", str(row.charged)),
        ("unrated", str(row.unrated)),
    )
    is_ok = row.charge == row.again and not (row.different or row.misdated or row.charged)
    return VerifyLine(f"shadow calls {row.currency}", figures, is_ok)


def _sum_lines(total: Any) -> list[VerifyLine]:
    """Return the lines of one currency: counts, and money through its four places."""
    counts = VerifyLine(
        f"counts {total.currency}",
        (
            ("events", str(total.event_requests)),
            ("rollup requests", str(total.rollup_requests)),
            ("event tokens", str(total.event_tokens)),
            ("rollup tokens", str(total.rollup_tokens)),
        ),
        total.event_requests == total.rollup_requests and total.event_tokens == total.rollup_tokens,
    )
    posted_and_pending = EXACT.add(total.receivable, total.pending)
    amounts = (total.event_charge, total.rollup_charge, total.owed, posted_and_pending)
    money = VerifyLine(
        f"money {total.currency}",
        (
            ("events", format_amount(total.event_charge)),
            ("rollups", format_amount(total.rollup_charge)),
            ("owed", format_amount(total.owed)),
            ("ledger receivable", format_amount(total.receivable)),
            ("ledger revenue", format_amount(total.revenue)),
            ("pending", format_amount(total.pending)),
        ),
        len(set(amounts)) == 1 and total.receivable == total.revenue,
    )
    groups = VerifyLine(
        f"project hours {total.currency}",
        (("checked", str(total.groups)), ("differing", str(total.different))),
        not total.different,
    )
    return [counts, money, groups]


def _ledger_line(row: Any) -> VerifyLine:
    figures = (
        ("transactions", str(row.transactions)),
        ("sum of all entries", format_amount(row.total)),
        ("unbalanced", str(row.unbalanced)),
        ("incomplete", str(row.incomplete)),
    )
    is_ok = row.total == 0 and not row.unbalanced and not row.incomplete
    return VerifyLine("ledger", figures, is_ok)


def _budget_line(proof: SpendProof) -> VerifyLine:
    figures = (
        ("windows", str(proof.windows)),
        ("events", format_amount(proof.from_events)),
        ("spent", format_amount(proof.recorded)),
        ("differing", str(proof.differing)),
    )
    return VerifyLine("budgets", figures, not proof.differing)


def _credit_line(proof: CreditProof) -> VerifyLine:
    figures = (
        ("granted", format_amount(proof.granted)),
        ("burned", format_amount(proof.burned)),
        ("expired", format_amount(proof.expired)),
        ("posted grants", format_amount(proof.granted_posted)),
        ("posted burns", format_amount(proof.burned_posted)),
        ("posted expiries", format_amount(proof.expired_posted)),
        ("ledger balance", format_amount(proof.balance)),
        ("differing hours", str(proof.differing)),
        ("posted beyond charges", str(proof.overposted)),
    )
    return VerifyLine(f"credit {proof.currency}", figures, proof.is_ok)


def _journal_lines(row: Any) -> list[VerifyLine]:
    accounted = row.settled + row.open + row.voided + row.duplicates + row.set_aside
    admitted = VerifyLine(
        "journals",
        (
            ("admitted", str(row.admitted)),
            ("settled", str(row.settled)),
            ("open", str(row.open)),
            ("voided", str(row.voided)),
            ("set aside", str(row.set_aside)),
            ("duplicates", str(row.duplicates)),
        ),
        row.admitted == accounted and row.open >= 0 and not row.unfinished,
    )
    stored = VerifyLine(
        "journals and events",
        (
            ("settled and voided", str(row.settled + row.voided)),
            ("events", str(row.events)),
            ("differing journals", str(row.different)),
        ),
        row.settled + row.voided == row.events and not row.different,
    )
    return [admitted, stored]


def _zero_line(label: str, count: int) -> VerifyLine:
    return VerifyLine(label, (("found", str(count)),), count == 0)


def _difference_text(row: Any) -> str:
    return (
        f"{row.hour:%Y-%m-%dT%H}Z {row.organization_id} {row.project_id} {row.currency}:"
        f" events {row.event_requests}/{format_amount(row.event_charge)},"
        f" rollups {row.rollup_requests}/{format_amount(row.rollup_charge)},"
        f" owed {format_amount(row.owed)}, ledger {format_amount(row.receivable)}"
        f"/{format_amount(row.revenue)}"
    )

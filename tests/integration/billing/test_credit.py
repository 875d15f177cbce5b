"""Credit: what may still be charged is exact, whatever expires, switches or comes late."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from billing.budgets.credit_rule import BillingMode, rule_id
from billing.clock import to_epoch_us
from billing.reconciliation import verify
from tests.factories.billing_rows import rows, running_worker, value, wait_until, work_once
from tests.factories.credit import grant, pay, refresh, room, standing
from tests.factories.journals import ORGANIZATION, TestJournal, make_identity

ONE = Decimal("0.00008")  # 100 input and 20 output tokens at 0.50 and 1.50 a million
NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)


def at(minutes: float) -> datetime:
    """Return a time so many minutes after yesterday's noon."""
    return NOON + timedelta(minutes=minutes)


def charge(database_url: str, directory: Path, *moments: datetime) -> None:
    """Store a request of :data:`ONE` at each of the moments."""
    journal = TestJournal(directory)
    for moment in moments:
        journal.request(identity=make_identity(started_at_us=to_epoch_us(moment)))
    assert work_once(database_url, directory) == 0


def check_agreement(database_url: str, now: datetime) -> Decimal:
    """Return what is left; the rule must leave exactly that."""
    found = standing(database_url, at=now)
    assert found.left is not None
    assert room(database_url) == found.left
    assert found.owed >= 0
    return found.left


def test_old_spend_does_not_block_who_begins_to_prepay(billing_url: str, tmp_path: Path) -> None:
    charge(billing_url, tmp_path, at(0), at(1), at(-60 * 24 * 90))
    pay(billing_url, BillingMode.PREPAID, at=at(10))
    assert check_agreement(billing_url, at(10)) == 0
    grant(billing_url, "1", at=at(11))
    assert check_agreement(billing_url, at(11)) == 1
    charge(billing_url, tmp_path, at(12))
    assert check_agreement(billing_url, at(13)) == 1 - ONE
    assert value(billing_url, "SELECT credit_base FROM organizations") == 3 * ONE
    assert verify(billing_url).is_clean


def test_a_limit_counts_from_when_it_is_set(billing_url: str, tmp_path: Path) -> None:
    charge(billing_url, tmp_path, at(0))
    pay(billing_url, BillingMode.POSTPAID, "0", at=at(1))
    assert check_agreement(billing_url, at(1)) == 0
    pay(billing_url, BillingMode.POSTPAID, "0.5", at=at(2))
    charge(billing_url, tmp_path, at(3))
    assert check_agreement(billing_url, at(4)) == Decimal("0.5") - ONE
    assert standing(billing_url).owed == ONE
    grant(billing_url, "2", at=at(5))  # what was owed before it stays owed
    charge(billing_url, tmp_path, at(6))
    assert check_agreement(billing_url, at(7)) == Decimal("2.5") - 2 * ONE
    assert (standing(billing_url).owed, standing(billing_url).state.burned) == (ONE, ONE)
    pay(billing_url, BillingMode.POSTPAID, at=at(8))
    assert standing(billing_url).left is None
    assert verify(billing_url).is_clean


def test_who_switches_from_owing_to_prepaying_begins_at_nothing(
    billing_url: str, tmp_path: Path
) -> None:
    grant(billing_url, "0.00012", at=at(0))  # one and a half requests, before credit rules
    charge(billing_url, tmp_path, at(1), at(2), at(3))
    assert standing(billing_url).owed == 3 * ONE - Decimal("0.00012")
    pay(billing_url, BillingMode.PREPAID, at=at(4))
    assert check_agreement(billing_url, at(4)) == 0
    grant(billing_url, "1", at=at(5))
    assert check_agreement(billing_url, at(5)) == 1
    assert verify(billing_url).is_clean


def test_an_expiry_inside_an_hour_parts_its_charges(billing_url: str, tmp_path: Path) -> None:
    pay(billing_url, BillingMode.PREPAID, at=at(0))
    short = grant(billing_url, "1", at=at(0), expires_at=at(20), priority=5)
    long = grant(billing_url, "1", at=at(10), priority=7)
    before_end = at(20) - timedelta(microseconds=1)
    charge(billing_url, tmp_path, at(5), at(12), before_end, at(20), at(59), at(60))
    refresh(billing_url, at=at(90))
    assert check_agreement(billing_url, at(90)) == 1 - 3 * ONE
    found = {one.grant.id: one for one in standing(billing_url, at=at(90)).state.grants}
    assert (found[short].burned, found[short].forfeited) == (3 * ONE, 1 - 3 * ONE)
    assert (found[long].burned, found[long].forfeited) == (3 * ONE, 0)
    assert verify(billing_url).is_clean


def test_a_charge_that_comes_late_is_paid_by_what_held_then(
    billing_url: str, tmp_path: Path
) -> None:
    pay(billing_url, BillingMode.PREPAID, at=at(0))
    grant(billing_url, "1", at=at(0), expires_at=at(20))
    grant(billing_url, "1", at=at(0))
    charge(billing_url, tmp_path, at(30))
    assert refresh(billing_url, at=at(40))
    assert check_agreement(billing_url, at(40)) == 1 - ONE
    charge(billing_url, tmp_path, at(10))
    assert room(billing_url) == 1 - 2 * ONE  # careful until it is looked at again
    assert refresh(billing_url, at=at(41))
    assert check_agreement(billing_url, at(41)) == 1 - ONE
    assert not refresh(billing_url, at=at(42))
    assert verify(billing_url).is_clean


def test_what_was_overspent_is_taken_out_of_the_next_grant(
    billing_url: str, tmp_path: Path
) -> None:
    pay(billing_url, BillingMode.PREPAID, at=at(0))
    grant(billing_url, "0.0001", at=at(0))
    charge(billing_url, tmp_path, at(1), at(2))
    assert check_agreement(billing_url, at(3)) == Decimal("0.0001") - 2 * ONE
    grant(billing_url, "1", at=at(4))
    assert check_agreement(billing_url, at(4)) == Decimal("1.0001") - 2 * ONE


def test_credit_that_begins_while_batches_are_stored_misses_nothing(
    billing_url: str, tmp_path: Path
) -> None:
    """What was charged is either in the base or counted: the sum of both is all of it."""
    journal = TestJournal(tmp_path, segment_bytes=1 << 20)
    is_done = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not is_done.wait(0.002) or written < 50:
            journal.request()
            written += 1

    thread = threading.Thread(target=write)
    with running_worker(billing_url, tmp_path, batch_records=20):
        thread.start()
        wait_until(lambda: value(billing_url, "SELECT count(*) FROM usage_events") > 20)
        pay(billing_url, BillingMode.PREPAID)
        base = value(billing_url, "SELECT credit_base FROM organizations")
        grant(billing_url, "1")
        is_done.set()
        thread.join()
        wait_until(lambda: value(billing_url, "SELECT count(*) FROM usage_events") == written)
    assert 0 < base < written * ONE
    assert check_agreement(billing_url, datetime.now(UTC)) == 1 + base - written * ONE
    assert verify(billing_url).is_clean


def test_the_rule_counts_once_for_each_organization(billing_url: str, tmp_path: Path) -> None:
    for minute in range(3):
        grant(billing_url, "1", at=at(minute))
    pay(billing_url, BillingMode.PREPAID, at=at(5))
    assert rows(billing_url, "SELECT id, amount, is_hard, is_credit FROM budgets") == [
        (rule_id(ORGANIZATION), Decimal(3), True, True)
    ]

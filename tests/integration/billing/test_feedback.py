"""Feedback in a journal is stored once, the last of it, and never in the way of usage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from billing.usage.event import FeedbackRecord, TokenUsage
from tests.factories.billing_rows import rows, value, work_once
from tests.factories.journals import TestJournal

GIVEN = FeedbackRecord("req_1", "org_1", "proj_1", "key_1", 0.5, 1_795_000_000_000_000, "fine")


def said(**changes: Any) -> FeedbackRecord:
    return msgspec.structs.replace(GIVEN, **changes)


def test_the_last_word_counts_and_usage_is_not_touched(billing_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    journal.request(usage=TokenUsage(10, 0, 5, None))
    journal.write(
        GIVEN,
        said(score=1.0, at_us=GIVEN.at_us + 2, comment=None),
        said(score=0.0, at_us=GIVEN.at_us + 1),  # said before, read after: another worker's
        said(project_id="proj_2", comment="a\0b"),
        said(request_id="no\0ne"),
        said(request_id="never", at_us=2**62),
        said(request_id="much", score=7.0),
    )
    journal.request(usage=TokenUsage(10, 0, 5, None))
    assert work_once(billing_url, tmp_path) == 0
    found = "SELECT project_id, request_id, score, comment FROM feedback ORDER BY 1"
    stored = [("proj_1", "req_1", 1.0, None), ("proj_2", "req_1", 0.5, "a\ufffdb")]
    assert rows(billing_url, found) == stored
    assert value(billing_url, "SELECT count(*) FROM usage_events") == 2
    assert value(billing_url, "SELECT count(*) FROM dead_letters") == 0
    work_once(billing_url, tmp_path)
    assert rows(billing_url, found) == stored

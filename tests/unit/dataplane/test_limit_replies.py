"""Headers and errors that tell how limits stand."""

from __future__ import annotations

import json

import pytest

from gateway.dataplane.limit_replies import limit_lines, refusal_error
from gateway.dataplane.limits.types import Outcome, Refusal, Standing
from gateway.snapshot.model import Budget, RateLimit

_MINUTE = RateLimit("lim_1", "project", "proj_1", "requests", 20, 60)
_BUDGET = Budget("bud_1", "team", "key", "key_1", "daily", "12.5", "EUR")


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, b"0ms"),
        (999, b"999ms"),
        (1000, b"1s"),
        (1500, b"1.5s"),
        (60_000, b"1m0s"),
        (61_001, b"1m1.001s"),
        (3_600_000, b"1h0m0s"),
        (90_061_250, b"25h1m1.25s"),
    ],
)
def test_resets_are_written_as_openai_does(ms: int, text: bytes) -> None:
    lines = limit_lines(Outcome(None, Standing(20, 3, ms), None))
    assert lines == (
        b"x-ratelimit-limit-requests: 20\r\nx-ratelimit-remaining-requests: 3\r\n"
        b"x-ratelimit-reset-requests: %b\r\n" % text
    )


def test_what_is_not_limited_is_absent() -> None:
    assert limit_lines(Outcome(None, None, None)) == b""
    assert b"requests" not in limit_lines(Outcome(None, None, Standing(5, 0, 10)))


def test_a_used_up_soft_budget_is_named() -> None:
    lines = limit_lines(Outcome(None, None, None, (_BUDGET,)))
    assert lines == b"x-forebay-budget-warning: bud_1\r\n"


def test_a_limit_that_struck_is_named_with_its_reset() -> None:
    error = refusal_error(Refusal(limit=_MINUTE, retry_after_ms=1501, remaining=0, requested=1))
    told = json.loads(error.body())["error"]
    assert (error.status, told["code"], told["type"]) == (
        429,
        "rate_limit_exceeded",
        "rate_limit_error",
    )
    assert told["limit"] == {
        "id": "lim_1",
        "scope": "project",
        "scope_id": "proj_1",
        "metric": "requests",
        "amount": 20,
        "per_seconds": 60,
        "remaining": 0,
        "requested": 1,
        "reset_after_ms": 1501,
    }
    # Rounded up: who waits so long has waited long enough.
    assert dict(error.headers()) == {"retry-after": "2", "retry-after-ms": "1501"}


def test_what_can_never_fit_has_no_retry_after() -> None:
    limit = RateLimit("lim_2", "key", "key_1", "total_tokens", 100, 60)
    error = refusal_error(Refusal(limit=limit, remaining=100, requested=5000))
    assert "never fit" in error.message
    assert dict(error.headers()) == {"x-should-retry": "false"}
    assert json.loads(error.body())["error"]["code"] == "request_over_rate_limit"


def test_a_budget_is_named_with_its_reset() -> None:
    error = refusal_error(
        Refusal(budget=_BUDGET, remaining=1_250_000_001, resets_at_us=1_796_000_000_000_000)
    )
    told = json.loads(error.body())["error"]
    assert (error.status, told["code"], told["type"]) == (
        402,
        "budget_exhausted",
        "insufficient_quota",
    )
    assert told["budget"] == {
        "id": "bud_1",
        "name": "team",
        "scope": "key",
        "window": "daily",
        "amount": "12.5",
        "currency": "EUR",
        "remaining": "1.250000001",
        "resets_at": "2026-11-30T00:53:20Z",
    }
    assert dict(error.headers()) == {"x-should-retry": "false"}


def test_credit_is_told_as_credit() -> None:
    rule = Budget("crd_org_1", "credit", "organization", "org_1", "lifetime", "120", "EUR")
    told = json.loads(refusal_error(Refusal(budget=rule, remaining=5_000_000_000)).body())["error"]
    assert told["code"] == "credit_exhausted"
    assert told["credit"] == {"organization_id": "org_1", "currency": "EUR", "remaining": "5"}
    assert "120" not in told["message"]  # the rule's own amount means nothing to a client

"""Headers and errors that tell how limits stand."""

from __future__ import annotations

import json

import pytest

from gateway.dataplane.limit_replies import ended_budget_error, limit_lines, refusal_error
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
        "held": "0",
        "retry_after_ms": None,
        "resets_at": "2026-11-30T00:53:20Z",
    }
    assert dict(error.headers()) == {"x-should-retry": "false"}


def test_credit_is_told_as_credit() -> None:
    rule = Budget("crd_org_1", "credit", "organization", "org_1", "lifetime", "120", "EUR")
    told = json.loads(refusal_error(Refusal(budget=rule, remaining=5_000_000_000)).body())["error"]
    assert told["code"] == "credit_exhausted"
    assert told["credit"] == {
        "organization_id": "org_1",
        "currency": "EUR",
        "remaining": "5",
        "held": "0",
        "retry_after_ms": None,
    }
    assert "120" not in told["message"]  # the rule's own amount means nothing to a client


@pytest.mark.parametrize("name", ["bud_1", "crd_org_1"])
def test_money_that_is_only_held_is_told_with_when_to_come_back(name: str) -> None:
    budget = Budget(name, "team", "organization", "org_1", "lifetime", "120", "EUR")
    refusal = Refusal(
        budget=budget,
        retry_after_ms=2_500,
        remaining=10_000_000,
        held=500_000_000,
        is_held=True,
    )
    error = refusal_error(refusal)
    told = json.loads(error.body())["error"]
    numbers = told["credit" if name.startswith("crd_") else "budget"]
    assert error.status == 402
    assert (numbers["remaining"], numbers["held"], numbers["retry_after_ms"]) == (
        *("0.01", "0.5", 2500),
    )
    assert "running requests hold 0.5 EUR of it" in told["message"]
    assert "try again in about 2.5 s" in told["message"]
    assert dict(error.headers()) == {"retry-after": "3", "retry-after-ms": "2500"}
    # Spent: only the reset or a payment helps, also while something is held.
    spent = refusal_error(Refusal(budget=budget, retry_after_ms=9_000, held=5))
    assert dict(spent.headers()) == {"x-should-retry": "false"}
    assert "hold" not in spent.message


@pytest.mark.parametrize("name", ["bud_1", "crd_org_1"])
def test_the_end_of_an_answer_names_its_budget_and_no_request(name: str) -> None:
    budget = Budget(name, "team", "key", "key_1", "daily", "12.5", "EUR")
    error = ended_budget_error(budget, resets_at_us=1_796_000_000_000_000)
    told = json.loads(error.body())["error"]
    assert "no room for more of this answer, which ends here" in told["message"]
    assert "request" not in told["message"]
    numbers = told["credit" if name.startswith("crd_") else "budget"]
    assert (numbers["remaining"], numbers["held"], numbers["retry_after_ms"]) == (None, None, None)
    if name == "bud_1":
        assert numbers["resets_at"] == "2026-11-30T00:53:20Z"

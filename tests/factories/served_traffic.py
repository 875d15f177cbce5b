"""A few days of served requests, written as journals, stored by the real worker."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from billing.usage.event import RequestStatus, TokenUsage
from tests.factories.billing_rows import (
    add_organization,
    add_price,
    add_price_book,
    execute,
    work_once,
)
from tests.factories.journals import TestJournal, make_identity

# Input, output and cached input, per million: more decimals than any report rounds to.
PRICES = {"big": ("2.000000000001", "8", "0.5"), "small": ("0.15", "0.6", None)}
DAYS = 4
_UNBILLED = (RequestStatus.FAILED, RequestStatus.REJECTED)
_MILLION = Decimal(10**6)


@dataclass(frozen=True)
class Served:
    """One request as it was written; times in microseconds."""

    at: datetime
    route: str
    usage: TokenUsage
    status: RequestStatus
    ttft_us: int | None
    e2e_us: int

    @property
    def charge(self) -> Decimal:
        """What it costs at :data:`PRICES`, exactly."""
        if self.status in _UNBILLED:
            return Decimal(0)
        input_, output, cached = PRICES[self.route]
        usage = self.usage
        fresh = (usage.input_tokens or 0) - (usage.cached_input_tokens or 0)
        return (
            fresh * Decimal(input_)
            + (usage.cached_input_tokens or 0) * Decimal(cached or input_)
            + (usage.output_tokens or 0) * Decimal(output)
        ) / _MILLION

    @property
    def tpot_us(self) -> int | None:
        """As it is defined: (E2E - TTFT) / (output tokens - 1), rounded to a microsecond."""
        gaps = (self.usage.output_tokens or 0) - 1
        if self.ttft_us is None or gaps < 1:
            return None
        return (self.e2e_us - self.ttft_us + gaps // 2) // gaps


def generate_served(last_day: datetime, *, requests: int = 400, seed: int = 11) -> list[Served]:
    """Return requests of :data:`DAYS` days up to the end of ``last_day``, the first and the last
    hour among them; a route of few, a quiet night, failures, replies without a first token."""
    chance = random.Random(seed)
    first = last_day - timedelta(days=DAYS - 1)
    served = []
    for number in range(requests):
        day, hour = chance.randrange(DAYS), chance.choice([0, *range(7, 22), 23])
        at = first + timedelta(days=day, hours=hour, seconds=chance.randrange(3600))
        if number in (0, 1):  # the ends of the span
            at = first if number == 0 else first + timedelta(days=DAYS, seconds=-1)
        status = RequestStatus.COMPLETED
        if number % 19 == 5:
            status = chance.choice([*_UNBILLED, RequestStatus.CLIENT_CLOSED])
        input_ = chance.randrange(100, 40_000)
        output = 1 if number % 23 == 3 else chance.randrange(2, 900)
        usage = TokenUsage(input_, input_ // 3 if number % 2 else 0, output, 0)
        if status in _UNBILLED:
            usage = TokenUsage()
        ttft = None if number % 7 == 2 else int(chance.lognormvariate(12.5, 0.6))
        e2e = (ttft or 50_000) + output * int(chance.lognormvariate(9.6, 0.3))
        is_late = at >= first + timedelta(hours=1)  # the big one is used later than the small one
        route = "big" if number % 5 == 1 and is_late else "small"
        served.append(Served(at, route, usage, status, ttft, e2e))
    return served


def store_served(database_url: str, root: Path, served: list[Served]) -> None:
    """Make an organization with prices, write the requests and let a worker store them."""
    add_price_book(database_url)
    add_organization(database_url)
    deployment = (
        "INSERT INTO deployments (id, name, engine_model, created_at) VALUES (%s, %s, %s, now())"
    )
    for route, (input_, output, cached) in PRICES.items():
        execute(database_url, deployment, f"dep_{route}", f"{route} engine", "m")
        execute(
            database_url,
            "INSERT INTO routes (id, name, deployment_id, created_at) VALUES (%s, %s, %s, now())",
            f"route_{route}",
            route,
            f"dep_{route}",
        )
        add_price(database_url, input_, output, cached, route_id=f"route_{route}")
    journal = TestJournal(root, segment_bytes=1024 * 1024)
    for one in served:
        at_us = int(one.at.timestamp()) * 1_000_000
        journal.request(
            identity=make_identity(
                route=one.route,
                route_id=f"route_{one.route}",
                deployment_id=f"dep_{one.route}",
                started_at_us=at_us,
            ),
            usage=one.usage,
            status=one.status,
            first_token_at_us=None if one.ttft_us is None else at_us + one.ttft_us,
            finished_at_us=at_us + one.e2e_us,
        )
    work_once(database_url, root)


def yesterday() -> datetime:
    """Return the beginning of the last whole day."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)


def write_profile(path: Path, served: list[Served]) -> Path:
    """Write the requests' hours by route as a profile's CSV, charges to the last digit."""
    sums: dict[tuple[datetime, str], list[Decimal]] = {}
    for one in served:
        key = (one.at.replace(minute=0, second=0), one.route)
        usage = one.usage
        counts = (1, usage.input_tokens, usage.cached_input_tokens, usage.output_tokens, one.charge)
        known = sums.setdefault(key, [Decimal(0)] * len(counts))
        sums[key] = [a + Decimal(b or 0) for a, b in zip(known, counts, strict=True)]
    lines = ["hour,route,requests,input_tokens,cached_input_tokens,output_tokens,charge,currency"]
    for (hour, route), (requests, input_, cached, output, charge) in sums.items():
        lines.append(
            f"{hour.isoformat()},{route},{requests},{input_},{cached},{output},{charge:f},EUR"
        )
    path.write_text("\n".join(lines), encoding="utf-8")
    return path

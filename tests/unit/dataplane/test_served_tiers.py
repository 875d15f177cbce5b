"""A route's tiers as the serving table resolves them: names, chains, prices, and what journals left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.http_pool import Endpoint
from backends.write_queue import WriteQueue
from billing.usage.event import TierDecision, TokenUsage
from gateway.dataplane.fleet import FleetRegistry
from gateway.dataplane.read_left_charges import count_left_charges
from gateway.dataplane.served_route import ServedTiers
from gateway.dataplane.serving_table import QueueRegistry, ServingTable, build_serving_table
from gateway.snapshot.model import Budget, Replica, Snapshot, Tier, TierPolicy
from tests.factories.journals import TestJournal, make_identity
from tests.factories.snapshots import make_key
from tests.factories.tier_snapshots import make_policy, make_tier_snapshot

USAGE = TokenUsage(100, 0, 0, 0)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def snapshot_of(policy: TierPolicy, **changes: Any) -> Snapshot:
    urls = dict.fromkeys(("small_url", "large_url", "dead_url"), "http://127.0.0.1:9")
    return make_tier_snapshot(1, policy=policy, **urls, **changes)


def serve(loop: asyncio.AbstractEventLoop, snapshot: Snapshot) -> ServingTable:
    def endpoint(replica: Replica) -> Endpoint:
        writes = WriteQueue(loop, before=lambda: None)
        return Endpoint(replica.base_url, secret=None, connect_timeout_seconds=1.0, writes=writes)

    fleets = FleetRegistry(endpoint, clock=lambda: 0.0, prober=None, workers=1, index=0)
    queues = QueueRegistry(loop, workers=1, index=0)
    return build_serving_table(snapshot, fleets, queues, find_predictor=lambda _: None)


def tiers_of(table: ServingTable) -> ServedTiers:
    tiers = table.routes["auto"].tiers
    assert tiers is not None
    return tiers


def test_each_tier_falls_back_to_the_next_above_first(loop: asyncio.AbstractEventLoop) -> None:
    three = (Tier("s", "small"), Tier("m", "spare"), Tier("l", "large"))
    policy = make_policy(tiers=three, thresholds=(0.1, 0.2), default_tier="m")
    table = serve(loop, snapshot_of(policy, fallbacks=("large", "alias")))
    tiers = tiers_of(table)
    assert (tiers.names, tiers.default) == (("s", "m", "l"), 1)
    chains = [[one.route.name for one in route.fallbacks] for route in tiers.routes]
    assert chains == [
        ["spare", "large", "alias"],
        ["large", "small", "alias"],
        ["spare", "small", "alias"],
    ]
    for route in (*tiers.routes, *tiers.routes[0].fallbacks):
        assert route.asked.name == "auto"
        assert b"x-forebay-route: auto\r\n" in route.decision_lines
    assert tiers.find_route("route_large") is not None
    assert tiers.find_route("route_none") is None
    # As itself, each is as it was.
    assert table.routes["small"].tier is None
    assert table.routes["small"].fallbacks == ()
    assert b"x-forebay-tier" not in table.routes["small"].decision_lines


@pytest.mark.parametrize(
    "changes",
    [
        {"tiers": (Tier("small", "small"), Tier("large", "nothing"))},
        {"default_tier": "huge"},
        {"thresholds": (0.1, 0.2)},
        {"project_thresholds": {"proj_1": ()}},
    ],
)
def test_a_policy_that_is_not_whole_serves_nothing(
    loop: asyncio.AbstractEventLoop, changes: dict[str, Any]
) -> None:
    assert serve(loop, snapshot_of(make_policy(**changes))).routes["auto"].tiers is None


class Limiter:
    """Takes what a journal left."""

    def __init__(self) -> None:
        self.left: list[Any] = []

    def count_left(self, journal: Any) -> None:
        self.left.append(journal)


@pytest.mark.parametrize(
    ("charge", "share", "nano"),
    [
        ("as_served", "1", 100_000),
        ("as_requested", "1", 400_000),
        ("saving_shared", "0.5", 550_000),
    ],
)
def test_what_a_journal_left_counts_as_it_is_charged(
    loop: asyncio.AbstractEventLoop, tmp_path: Path, charge: str, share: str, nano: int
) -> None:
    policy = make_policy(charge=charge, saving_share=share)
    budget = Budget("bud_1", "all", "project", "proj_1", "lifetime", "5", "EUR")
    snapshot = snapshot_of(policy, budgets=(budget,))
    decision = TierDecision(
        "route_auto", "auto", "small", "score", 0.1, charge, share, "route_large"
    )
    journal = TestJournal(tmp_path)
    identity = make_identity(route_id="route_small", route="small", tier=decision)
    journal.request(identity=identity, usage=USAGE)
    removed = msgspec.structs.replace(decision, requested_route_id="route_removed")
    journal.request(identity=make_identity(route_id="route_small", tier=removed), usage=USAGE)
    journal.die()
    limiter = Limiter()
    count_left_charges(
        limiter,  # type: ignore[arg-type]
        tmp_path,
        own_journal_id="jrn_own",
        snapshot=snapshot,
        table=serve(loop, snapshot),
    )
    # As served where the policy is gone: the next spend feed knows better.
    assert [[one.nano for one in left.closed] for left in limiter.left] == [[nano, 100_000]]


def test_what_a_rotated_key_left_counts_for_its_budgets(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    budget = Budget("bud_1", "all", "key", "key_first", "lifetime", "5", "EUR")
    snapshot = msgspec.structs.replace(
        snapshot_of(make_policy(), budgets=(budget,)),
        keys={"01": make_key("new", lineage_id="key_first"), "02": make_key("other")},
    )
    journal = TestJournal(tmp_path)
    for key in ("key_new", "key_first", "key_other"):
        identity = make_identity(api_key_id=key, route_id="route_small", route="small")
        journal.request(identity=identity, usage=USAGE)
    journal.die()
    limiter = Limiter()
    count_left_charges(
        limiter,  # type: ignore[arg-type]
        tmp_path,
        own_journal_id="jrn_own",
        snapshot=snapshot,
        table=serve(loop, snapshot),
    )
    assert [len(left.closed) for left in limiter.left] == [2]

"""Snapshots for data-plane tests: some keys in every state, some routes of every kind."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path

from gateway.snapshot.codec import encode_snapshot
from gateway.snapshot.model import (
    ApiKeyEntry,
    Budget,
    Deployment,
    PriceEntry,
    RateLimit,
    Replica,
    Route,
    Snapshot,
)

SECRET = "fb-test-good"
LIMITED_SECRET = "fb-test-limited"  # may use only "small"
REVOKED_SECRET = "fb-test-revoked"
EXPIRED_SECRET = "fb-test-expired"
BLOCKED_SECRET = "fb-test-blocked"
ENGINE_SECRET = "engine-secret-7f3a"

ENGINE_MODEL = "org/engine-model"  # what the engine of "alias" calls its model
LONG_NAME = "n" * 200  # the longest that the control plane takes
SLASHED = ("mistralai/Mistral-7B", "hf.co/x/y:Q4_K_M", "modèle")


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def make_key(name: str, **changes: object) -> ApiKeyEntry:
    fields = {
        "id": f"key_{name}",
        "project_id": "proj_1",
        "organization_id": "org_1",
        "price_book_id": "pb_1",
    }
    return ApiKeyEntry(**{**fields, **changes})  # type: ignore[arg-type]


def default_keys() -> dict[str, ApiKeyEntry]:
    return {
        digest(SECRET): make_key("good"),
        digest(LIMITED_SECRET): make_key("limited", allowed_routes=("small",)),
        digest(REVOKED_SECRET): make_key("revoked", is_revoked=True),
        digest(EXPIRED_SECRET): make_key(
            "expired", expires_at_us=time.time_ns() // 1000 - 1_000_000
        ),
        digest(BLOCKED_SECRET): make_key("blocked", is_blocked=True),
    }


def make_snapshot(
    version: int,
    engine_url: str,
    *,
    dead_url: str,
    keys: dict[str, ApiKeyEntry] | None = None,
    limits: tuple[RateLimit, ...] = (),
    budgets: tuple[Budget, ...] = (),
    unpriced: tuple[str, ...] = (),
) -> Snapshot:
    """Return a Snapshot whose engine is at ``engine_url``; nobody listens at ``dead_url``."""
    live = Replica("rep_live", engine_url, ENGINE_SECRET)
    dead = Replica("rep_dead", dead_url)
    # No retries: a test that breaks an engine once sees that break. tests/…/test_retries.py has them.
    deployments = {
        "dep_small": Deployment("dep_small", "small-cpu", "small", (live,), retry_share=0.0),
        "dep_alias": Deployment("dep_alias", "alias-cpu", ENGINE_MODEL, (live,), retry_share=0.0),
        "dep_none": Deployment("dep_none", "none", "none", ()),
        "dep_dead": Deployment("dep_dead", "dead", "dead", (dead,)),
        "dep_two": Deployment("dep_two", "two", "two", (dead, live)),
        "dep_prefix": Deployment(
            "dep_prefix", "prefix", "prefix", (Replica("rep_prefix", f"{engine_url}/gw/"),)
        ),
    }
    names = {
        "small": "dep_small",
        "alias": "dep_alias",
        "none": "dep_none",
        LONG_NAME: "dep_none",
        "dead": "dep_dead",
        "two": "dep_two",
        "prefix": "dep_prefix",
        **dict.fromkeys(SLASHED, "dep_alias"),
    }
    routes = {
        name: Route(f"route_{number}", name, deployment, 1_795_960_705_000_000)
        for number, (name, deployment) in enumerate(names.items())
    }
    prices = tuple(
        PriceEntry(f"price_{route.id}", "pb_1", route.id, 0, "EUR", "2.5", "10")
        for route in routes.values()
        if route.name not in unpriced
    )
    return Snapshot(
        version=version,
        published_at_us=time.time_ns() // 1000,
        keys=default_keys() if keys is None else keys,
        routes=routes,
        deployments=deployments,
        prices=prices,
        limits=limits,
        budgets=budgets,
    )


def put_file(path: Path, content: bytes | Snapshot) -> None:
    """Rename a new file into place, as the control plane does."""
    data = content if isinstance(content, bytes) else encode_snapshot(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    Path(name).replace(path)

"""Tier policies of routes: set whole, checked against the catalog, published, and kept from dangling."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.snapshot import model
from tests.fixtures.control_api import ControlApi, started

_NUMBERS = itertools.count()
_WEIGHTS = {"bias": 1.0, "mean_logprob": 2.5, "min_logprob": 0.0, "prompt_score": -1.0}


@pytest.fixture
async def api(module_database_url: str, tmp_path: Path) -> AsyncIterator[ControlApi]:
    async with started(module_database_url, state_dir=tmp_path / "state") as api:
        yield api


async def make_routes(api: ControlApi, count: int = 3) -> list[Any]:
    """Return new routes to one new deployment."""
    number = next(_NUMBERS)
    await api.post("/deployments", name=f"tiered-{number}", engine_model="org/model")
    return [
        await api.post("/routes", name=f"t{number}/{place}", deployment=f"tiered-{number}")
        for place in range(count)
    ]


def policy_of(small: Any, large: Any, **changes: Any) -> dict[str, Any]:
    return {
        "tiers": [
            {"name": "small", "route": small["name"]},
            {"name": "large", "route": large["id"]},
        ],
        "thresholds": [0.25],
        "default_tier": "large",
        **changes,
    }


async def test_a_policy_is_set_published_and_taken_away(api: ControlApi) -> None:
    auto, small, large = await make_routes(api)
    project = (await api.get("/projects"))["data"] or [(await api.make_key())]
    project_id = project[0].get("project_id", project[0]["id"])
    cascade = {"tokens": 8, "keep_at": 0.75, "decide_ms": 250.0, "weights": _WEIGHTS}
    wanted = policy_of(
        small,
        large,
        budget_ms=1.5,
        charge="saving_shared",
        saving_share="0.50",
        project_thresholds={project_id: [-0.5]},
        classifier="llama-8b-70b",
        cascade=cascade,
    )
    path = f"/routes/{auto['name']}"
    answer = await api.http.patch(path, json={"tiers": wanted})
    assert answer.status_code == 200, answer.text
    named = [
        {"name": "small", "route": small["name"]},
        {"name": "large", "route": large["name"]},
    ]
    assert answer.json()["tiers"] == {
        **wanted,
        "tiers": named,
        "saving_share": "0.5",
    }
    assert await api.get(path) == answer.json()
    assert api.snapshot().routes[auto["name"]].tiers == model.TierPolicy(
        tiers=(model.Tier("small", small["name"]), model.Tier("large", large["name"])),
        thresholds=(0.25,),
        default_tier="large",
        budget_ms=1.5,
        charge="saving_shared",
        saving_share="0.5",
        project_thresholds={project_id: (-0.5,)},
        classifier="llama-8b-70b",
        cascade=model.CascadePolicy(8, 0.75, 250.0, model.CascadeWeights(**_WEIGHTS)),
    )
    # A policy is set as a whole, and what the request does not name is left alone.
    await api.http.patch(path, json={"queue": {"size": 3}})
    assert (await api.get(path))["tiers"]["budget_ms"] == 1.5
    await api.http.patch(path, json={"tiers": policy_of(small, large)})
    assert api.snapshot().routes[auto["name"]].tiers == model.TierPolicy(
        tiers=(model.Tier("small", small["name"]), model.Tier("large", large["name"])),
        thresholds=(0.25,),
        default_tier="large",
    )
    await api.http.patch(path, json={"tiers": policy_of(small, large, cascade={})})
    published = api.snapshot().routes[auto["name"]].tiers
    assert published is not None
    assert published.cascade == model.CascadePolicy()
    await api.http.patch(path, json={"tiers": None})
    assert (await api.get(path))["tiers"] is None
    assert api.snapshot().routes[auto["name"]].tiers is None


async def test_routes_in_use_as_tiers(api: ControlApi) -> None:
    auto, small, large, other = await make_routes(api, 4)
    path = f"/routes/{auto['name']}"
    assert (await api.http.patch(path, json={"tiers": policy_of(small, large)})).is_success
    error = await api.refuse("DELETE", f"/routes/{small['name']}", 409)
    assert auto["name"] in error["message"]
    error = await api.refuse(
        "PATCH", f"/routes/{small['name']}", 400, json={"tiers": policy_of(large, other)}
    )
    assert auto["name"] in error["message"]
    error = await api.refuse(
        "PATCH", f"/routes/{other['name']}", 400, json={"tiers": policy_of(small, auto)}
    )
    assert "has tiers itself" in error["message"]
    assert error["param"] == "tiers.tiers.1.route"
    created = await api.post(
        "/routes",
        name=f"{auto['name']}-b",
        deployment=auto["deployment"],
        tiers=policy_of(small, large),
    )
    assert created["tiers"]["default_tier"] == "large"
    for name in (auto["name"], created["name"]):
        assert (await api.http.delete(f"/routes/{name}")).is_success
    assert (await api.http.delete(f"/routes/{small['name']}")).is_success


async def test_what_makes_no_sense_is_refused(api: ControlApi) -> None:
    auto, small, large = await make_routes(api)
    version = api.snapshot().version
    small_tier, large_tier = policy_of(small, large)["tiers"]
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"tiers": [small_tier]}, "tiers.tiers", "at least 2"),
        ({"thresholds": []}, "tiers.thresholds", "at least 1"),
        ({"thresholds": [0.1, 0.2]}, "tiers", "2 tiers have 1 thresholds"),
        ({"thresholds": [3]}, "tiers.thresholds.0", "less than or equal to 2"),
        ({"thresholds": ["0.1"]}, "tiers.thresholds.0", "number"),
        ({"default_tier": "huge"}, "tiers", "no tier 'huge'"),
        ({"charge": "as_wished"}, "tiers.charge", "as_served"),
        ({"charge": "saving_shared"}, "tiers", "saving_share"),
        ({"saving_share": "0.5"}, "tiers", "saving_share"),
        ({"charge": "saving_shared", "saving_share": "1.01"}, "tiers.saving_share", "more than"),
        ({"charge": "saving_shared", "saving_share": "0.12345"}, "tiers.saving_share", "4 dec"),
        ({"charge": "saving_shared", "saving_share": 0.5}, "tiers.saving_share", "string"),
        ({"budget_ms": 0}, "tiers.budget_ms", "greater than 0"),
        ({"classifier": "../up"}, "tiers.classifier", "pattern"),
        ({"classifier": "nobody"}, "tiers.classifier", "no classifier 'nobody'"),
        ({"colour": 1}, "tiers.colour", "not"),
        ({"cascade": {"tokens": 0}}, "tiers.cascade.tokens", "greater than or equal to 1"),
        ({"cascade": {"keep_at": 1.1}}, "tiers.cascade.keep_at", "less than or equal to 1"),
        ({"cascade": {"decide_ms": 0}}, "tiers.cascade.decide_ms", "greater than 0"),
        ({"cascade": {"weights": {"bias": 1}}}, "tiers.cascade.weights.mean_logprob", "required"),
        (
            {"cascade": {"weights": {**_WEIGHTS, "mean_logprob": -1}}},
            "tiers.cascade.weights.mean_logprob",
            "greater than or equal to 0",
        ),
        ({"project_thresholds": {"proj_none": [0.1]}}, "tiers.project_thresholds", "proj_none"),
        ({"project_thresholds": {"proj_none": []}}, "tiers.project_thresholds.proj_none", "1"),
        (
            {"tiers": [small_tier, {"name": "small", "route": large["name"]}]},
            "tiers",
            "one name",
        ),
        (
            {"tiers": [small_tier, {"name": "Large one", "route": large["name"]}]},
            "tiers.tiers.1.name",
            "pattern",
        ),
        (
            {"tiers": [small_tier, {"name": "large", "route": "nothing"}]},
            "tiers.tiers.1.route",
            "no route 'nothing'",
        ),
        (
            {"tiers": [{"name": "small", "route": auto["id"]}, large_tier]},
            "tiers.tiers.0.route",
            "itself",
        ),
        (
            {"tiers": [small_tier, {"name": "large", "route": small["id"]}]},
            "tiers.tiers.1.route",
            "is two tiers",
        ),
        (
            {
                "tiers": [small_tier, {"name": "middle", "route": auto["name"]}, large_tier],
                "thresholds": [0.2, 0.2],
            },
            "tiers",
            "ascend",
        ),
    ]
    for changes, param, says in wrong:
        body = {"tiers": policy_of(small, large, **changes)}
        error = await api.refuse("PATCH", f"/routes/{auto['name']}", 400, json=body)
        assert (changes, error["param"]) == (changes, param)
        assert says in error["message"], (changes, error["message"])
    assert api.snapshot().version == version

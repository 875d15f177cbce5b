"""Weights of organizations over HTTP and in the Snapshot; and limits that several remove at once."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.fixtures.control_api import ControlApi


async def weigh(api: ControlApi, organization_id: str, weight: Any) -> Any:
    answer = await api.http.patch(f"/organizations/{organization_id}", json={"weight": weight})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_weights_are_exact_bounded_and_reach_the_snapshot(api: ControlApi) -> None:
    plain = await api.post("/organizations", name="plain")
    heavy = await api.post("/organizations", name="heavy", weight="2.50")
    assert (plain["weight"], heavy["weight"]) == ("1", "2.5")
    assert (await weigh(api, plain["id"], "0.01"))["weight"] == "0.01"
    version = api.snapshot().version
    assert (await weigh(api, heavy["id"], 100))["weight"] == "100"
    assert [one["weight"] for one in (await api.get("/organizations"))["data"]] == ["0.01", "100"]
    snapshot = api.snapshot()
    assert snapshot.version > version
    assert snapshot.organization_weights == {plain["id"]: 0.01, heavy["id"]: 100.0}
    assert (await weigh(api, heavy["id"], None))["weight"] == "1"
    assert api.snapshot().organization_weights == {plain["id"]: 0.01}
    for wrong in (0, "0.009", "100.01", -1, 2.5, "x", "NaN", True, [], {}):
        body = {"weight": wrong}
        path = f"/organizations/{plain['id']}"
        assert (await api.refuse("PATCH", path, 400, json=body))["param"] == "weight", wrong
        body["name"] = "other"
        assert (await api.refuse("POST", "/organizations", 400, json=body))["param"] == "weight"
    odd = {"weight": 1, "name": "x"}
    error = await api.refuse("PATCH", f"/organizations/{plain['id']}", 400, json=odd)
    assert error["param"] == "name"
    error = await api.refuse("PATCH", "/organizations/org_none", 404, json={"weight": 1})
    assert error["param"] == "id"
    assert api.snapshot().organization_weights == {plain["id"]: 0.01}


async def test_of_several_that_remove_a_limit_one_finds_it(api: ControlApi) -> None:
    key = await api.make_key()
    what = {"scope": "key", "scope_id": key["id"], "metric": "requests", "per_seconds": 60}
    for _ in range(3):
        limit = await api.post("/limits", **what, amount=5)
        answers = await asyncio.gather(
            *(api.http.delete(f"/limits/{limit['id']}") for _ in range(6))
        )
        assert sorted(answer.status_code for answer in answers) == [200] + [404] * 5

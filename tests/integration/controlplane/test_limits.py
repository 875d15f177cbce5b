"""Rate limits over HTTP and in the Snapshot; limits of deployments and queues of routes."""

from __future__ import annotations

from typing import Any

from gateway.snapshot import model
from tests.fixtures.control_api import ControlApi

ROUTE = "hf.co/mistralai/Mistral-7B:Q4_K_M"


async def make_route(api: ControlApi) -> Any:
    deployment = await api.post("/deployments", name="d", engine_model="m")
    return await api.post("/routes", name=ROUTE, deployment=deployment["name"])


async def test_limits_of_every_scope_reach_the_snapshot(api: ControlApi) -> None:
    key, route = await api.make_key(), await make_route(api)
    project = (await api.get("/projects"))["data"][0]
    scopes = {
        "key": key["id"],
        "project": key["project_id"],
        "organization": project["organization_id"],
        "route": route["id"],
    }
    made = [
        await api.post(
            "/limits", scope=scope, scope_id=id_, metric="requests", amount=7, per_seconds=60
        )
        for scope, id_ in scopes.items()
    ]
    limits = api.snapshot().limits
    assert {limit.scope: limit.scope_id for limit in limits} == scopes
    assert [limit.id for limit in limits] == [limit["id"] for limit in made]
    assert {(limit.metric, limit.amount, limit.per_seconds) for limit in limits} == {
        ("requests", 7, 60)
    }
    of_key = (await api.get("/limits", scope="key", scope_id=key["id"]))["data"]
    assert of_key == [made[0]]
    assert (await api.get("/limits", scope="route", scope_id=ROUTE))["data"] == [made[3]]
    await api.refuse_filters("/limits", scope_id="key_none")
    assert (await api.refuse("GET", "/limits?scope=key&scope_id=x", 404))["param"] == "scope_id"
    assert (await api.refuse("GET", "/limits?scope=team", 400))["param"] == "scope"


async def test_a_changed_limit_keeps_its_id_and_a_removed_one_is_gone(api: ControlApi) -> None:
    key, route = await api.make_key(), await make_route(api)
    what = {"scope": "key", "scope_id": key["id"], "metric": "total_tokens", "per_seconds": 3600}
    everywhere = await api.post("/limits", **what, amount=1000)
    on_route = await api.post("/limits", **what, amount=5, route=ROUTE)
    assert on_route["route_id"] == route["id"]
    version = api.snapshot().version
    changed = await api.post("/limits", 200, **what, amount=0, route=None)
    assert (changed["id"], changed["amount"]) == (everywhere["id"], 0)
    assert changed["updated_at"] >= changed["created_at"] == everywhere["created_at"]
    snapshot = api.snapshot()
    assert snapshot.version > version
    assert {limit.id: limit.amount for limit in snapshot.limits} == {
        everywhere["id"]: 0,
        on_route["id"]: 5,
    }
    answer = await api.http.delete(f"/limits/{everywhere['id']}")
    assert (answer.status_code, answer.json()["id"]) == (200, everywhere["id"])
    assert [limit.id for limit in api.snapshot().limits] == [on_route["id"]]
    await api.refuse("DELETE", f"/limits/{everywhere['id']}", 404)


WITHOUT_SENSE: list[tuple[dict[str, Any], str]] = [
    ({"amount": -1}, "amount"),
    ({"amount": None}, "amount"),
    ({"amount": 1.5}, "amount"),
    ({"amount": 5.0}, "amount"),
    ({"amount": "5"}, "amount"),
    ({"amount": True}, "amount"),
    ({"amount": 10**18}, "amount"),
    ({"per_seconds": 0}, "per_seconds"),
    ({"per_seconds": 30}, "per_seconds"),
    ({"metric": "in_flight", "per_seconds": 1}, "per_seconds"),
    ({"metric": "dollars"}, "metric"),
    ({"scope": "galaxy"}, "scope"),
    ({"burst": 3}, "burst"),
]


async def test_what_makes_no_sense_is_refused(api: ControlApi) -> None:
    key = await api.make_key()
    usual = {
        "scope": "key",
        "scope_id": key["id"],
        "metric": "requests",
        "amount": 5,
        "per_seconds": 60,
    }
    for change, param in WITHOUT_SENSE:
        error = await api.refuse("POST", "/limits", 400, json={**usual, **change})
        assert error["param"] == param, change


async def test_an_absent_amount_or_span_is_not_zero(api: ControlApi) -> None:
    key = await api.make_key()
    body = {"scope": "key", "scope_id": key["id"], "metric": "requests"}
    error = await api.refuse("POST", "/limits", 400, json={**body, "per_seconds": 1})
    assert error["param"] == "amount"
    error = await api.refuse("POST", "/limits", 400, json={**body, "amount": 1})
    assert error["param"] == "per_seconds"
    nan = '{"scope":"key","scope_id":"%s","metric":"requests","per_seconds":1,"amount":NaN}'
    await api.refuse(
        "POST",
        "/limits",
        400,
        content=nan % key["id"],
        headers={"content-type": "application/json"},
    )
    in_flight = await api.post("/limits", **{**body, "metric": "in_flight"}, amount=0)
    assert (in_flight["per_seconds"], in_flight["amount"]) == (0, 0)


async def test_unknown_scopes_and_routes_are_refused(api: ControlApi) -> None:
    key = await api.make_key()
    body = {"metric": "requests", "amount": 5, "per_seconds": 1}
    for scope in ("key", "project", "organization", "route"):
        wanted = {**body, "scope": scope, "scope_id": "nothing"}
        assert (await api.refuse("POST", "/limits", 404, json=wanted))["param"] == "scope_id"
    wanted = {**body, "scope": "key", "scope_id": key["id"], "route": "nothing"}
    assert (await api.refuse("POST", "/limits", 404, json=wanted))["param"] == "route"


async def test_the_limit_of_a_route_is_on_that_route_alone(api: ControlApi) -> None:
    route = await make_route(api)
    other = await api.post("/routes", name="q", deployment=route["deployment_id"])
    body = {"scope": "route", "scope_id": ROUTE, "metric": "requests", "per_seconds": 1}
    wanted = {**body, "amount": 5, "route": other["id"]}
    assert (await api.refuse("POST", "/limits", 400, json=wanted))["param"] == "route"
    made = await api.post("/limits", **body, amount=5, route=route["id"])
    assert (made["scope_id"], made["route_id"]) == (route["id"], None)
    assert (await api.post("/limits", 200, **body, amount=6))["id"] == made["id"]


async def test_limits_of_deployments_and_queues_of_routes(api: ControlApi) -> None:
    route = await make_route(api)
    path = f"/deployments/{route['deployment_id']}"

    async def patch(path: str, **body: Any) -> Any:
        answer = await api.http.patch(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    for limit in (4, 0, None):
        assert (await patch(path, max_in_flight=limit))["max_in_flight"] == limit
        assert api.snapshot().deployments[route["deployment_id"]].max_in_flight == limit
    for wrong in (-1, 1.5, "4"):
        error = await api.refuse("PATCH", path, 400, json={"max_in_flight": wrong})
        assert error["param"] == "max_in_flight"
    await api.refuse("PATCH", path, 400, json={})
    assert api.snapshot().routes[ROUTE].queue == model.QueuePolicy()
    await patch(f"/routes/{ROUTE}", queue={"priority": "batch", "size": 0})
    await patch(f"/routes/{route['id']}", queue={"deadline_seconds": 2.5})
    assert api.snapshot().routes[ROUTE].queue == model.QueuePolicy("batch", 0, 2.5)
    answer = await patch(f"/routes/{ROUTE}", queue={"size": None})
    assert answer["queue"] == {"priority": "batch", "size": None, "deadline_seconds": 2.5}
    assert api.snapshot().routes[ROUTE].queue == model.QueuePolicy("batch", 100, 2.5)
    for wrong_queue in ({"priority": "high"}, {"size": -1}, {"deadline_seconds": 0}):
        error = await api.refuse("PATCH", f"/routes/{ROUTE}", 400, json={"queue": wrong_queue})
        assert error["param"] == f"queue.{next(iter(wrong_queue))}"
    await api.refuse("PATCH", "/routes/nothing", 404, json={"queue": {}})

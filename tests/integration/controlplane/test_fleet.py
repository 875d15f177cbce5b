"""Deployments, replicas and routes: made, changed, drained and removed, and out without restart.

All tests share one database: the names that they make are their own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.snapshot import model
from tests.factories.billing_rows import execute
from tests.fixtures.control_api import ControlApi, started

_NUMBERS = itertools.count()


@pytest.fixture
async def api(module_database_url: str, tmp_path: Path) -> AsyncIterator[ControlApi]:
    async with started(module_database_url, state_dir=tmp_path / "state") as api:
        yield api


async def make_deployment(api: ControlApi, **settings: Any) -> Any:
    name = f"dep-{next(_NUMBERS)}"
    return await api.post("/deployments", name=name, engine_model="org/model", **settings)


async def make_replica(api: ControlApi, deployment: Any, **settings: Any) -> Any:
    body = {"base_url": "http://10.0.0.7:8000", **settings}
    return await api.post(f"/deployments/{deployment['id']}/replicas", **body)


async def make_route(api: ControlApi, deployment: Any, **settings: Any) -> Any:
    name = f"hf.co/org/model-{next(_NUMBERS)}:Q4"
    return await api.post("/routes", name=name, deployment=deployment["name"], **settings)


async def change(api: ControlApi, method: str, path: str, **body: Any) -> Any:
    answer = await api.http.request(method, path, json=body or None)
    assert answer.status_code == 200, answer.text
    return answer.json()


def published(api: ControlApi, deployment: Any) -> model.Deployment:
    return api.snapshot().deployments[deployment["id"]]


SETTINGS: dict[str, Any] = {
    "max_in_flight": 8,
    "capabilities": {"context_tokens": 8192, "features": ["chat", "tools"], "adapters": []},
    "pick": {"load": 2, "session": 0},
    "breaker": {"failures": 3, "open_seconds": 0.5},
    "sleep": {"keep_warm_seconds": 0, "wake_limit_seconds": 30.5},
    "retry_share": 0,
    "first_token_timeout_seconds": 12.5,
    "idle_timeout_seconds": 4,
    "reply_timeout_seconds": 30,
}


async def test_all_settings_of_a_deployment_are_published(api: ControlApi) -> None:
    made = await make_deployment(api, **SETTINGS)
    assert made["pick"] == dict.fromkeys(model.PickPolicy.__struct_fields__) | SETTINGS["pick"]
    assert made["capabilities"] == SETTINGS["capabilities"]
    assert await api.get(f"/deployments/{made['id']}") == made
    assert published(api, made) == model.Deployment(
        id=made["id"],
        name=made["name"],
        engine_model="org/model",
        max_in_flight=8,
        capabilities=model.Capabilities(8192, ("chat", "tools"), ()),
        pick=model.PickPolicy(load=2, session=0),
        breaker=model.BreakerPolicy(failures=3, open_seconds=0.5),
        sleep=model.SleepPolicy(0, 30.5),
        retry_share=0,
        first_token_timeout_seconds=12.5,
        idle_timeout_seconds=4,
        reply_timeout_seconds=30,
    )
    plain = await make_deployment(api)
    assert published(api, plain) == model.Deployment(plain["id"], plain["name"], "org/model")
    listed = (await api.get("/deployments"))["data"]
    assert [made, plain] == [row for row in listed if row["id"] in {made["id"], plain["id"]}]


async def test_a_change_sets_what_is_given_and_null_is_the_default(api: ControlApi) -> None:
    made = await make_deployment(api, **SETTINGS)
    path = f"/deployments/{made['id']}"
    changed = await change(
        api,
        "PATCH",
        path,
        name=made["name"] + " b",
        pick={"load": None, "prefix": 0.25},
        capabilities={"context_tokens": None},
        sleep=None,
        retry_share=None,
    )
    assert changed["name"] == made["name"] + " b"
    assert changed["breaker"] == made["breaker"]
    deployment = published(api, made)
    assert deployment.pick == model.PickPolicy(session=0, prefix=0.25)
    assert deployment.capabilities == model.Capabilities(None, ("chat", "tools"), ())
    assert (deployment.sleep, deployment.retry_share) == (model.SleepPolicy(), 0.1)
    assert (deployment.max_in_flight, deployment.idle_timeout_seconds) == (8, 4)
    reset = dict.fromkeys(SETTINGS)
    await change(api, "PATCH", path, **reset)
    assert published(api, made) == model.Deployment(made["id"], changed["name"], "org/model")
    taken = await make_deployment(api)
    error = await api.refuse("PATCH", path, 409, json={"name": taken["name"]})
    assert error["param"] == "name"
    assert (await api.get(path))["name"] == changed["name"]


WRONG_DEPLOYMENTS: list[tuple[dict[str, Any], str]] = [
    ({"capabilities": {"features": ["chat", "telepathy"]}}, "capabilities.features.1"),
    ({"capabilities": {"features": ["chat", "chat"]}}, "capabilities.features"),
    ({"capabilities": {"context_tokens": 0}}, "capabilities.context_tokens"),
    ({"capabilities": {"adapters": ["two words"]}}, "capabilities.adapters.0"),
    ({"capabilities": {"colour": 1}}, "capabilities.colour"),
    ({"pick": {"load": -1}}, "pick.load"),
    ({"pick": {"load": "1"}}, "pick.load"),
    ({"pick": {"luck": 1}}, "pick.luck"),
    ({"breaker": {"failures": 0}}, "breaker.failures"),
    ({"breaker": {"failures": 1.5}}, "breaker.failures"),
    ({"breaker": {"failure_share": 0}}, "breaker.failure_share"),
    ({"breaker": {"open_seconds": 0}}, "breaker.open_seconds"),
    ({"sleep": {"keep_warm_seconds": -1}}, "sleep.keep_warm_seconds"),
    ({"sleep": 5}, "sleep"),
    ({"retry_share": 1.01}, "retry_share"),
    ({"first_token_timeout_seconds": 0}, "first_token_timeout_seconds"),
    ({"idle_timeout_seconds": True}, "idle_timeout_seconds"),
    ({"reply_timeout_seconds": 0}, "reply_timeout_seconds"),
    ({"max_in_flight": -1}, "max_in_flight"),
    ({"engine_model": None}, "engine_model"),
    ({"name": None}, "name"),
    ({"replicas": []}, "replicas"),
]
WRONG_REPLICAS: list[tuple[dict[str, Any], str]] = [
    ({"weight": -0.5}, "weight"),
    ({"weight": "1"}, "weight"),
    ({"weight": True}, "weight"),
    ({"weight": 10**9}, "weight"),
    ({"is_draining": 1}, "is_draining"),
    ({"base_url": None}, "base_url"),
    ({"base_url": "http://user:geheim@h:1"}, "base_url"),
    ({"agent_url": "file:///etc/passwd"}, "agent_url"),
    ({"agent_url": "http://h/?a=1"}, "agent_url"),
    ({"labels": {f"l{n}": "" for n in range(33)}}, "labels"),
    ({"labels": {"zone": 5}}, "labels"),
    ({"labels": ["zone"]}, "labels"),
    ({"labels": {"zone": "x" * 201}}, "labels.zone"),
    ({"secret": "two words"}, "secret"),
]


async def test_settings_that_make_no_sense_are_refused(api: ControlApi) -> None:
    deployment = await make_deployment(api)
    replica = await make_replica(api, deployment)
    version = api.snapshot().version
    for path, wrong in (
        (f"/deployments/{deployment['id']}", WRONG_DEPLOYMENTS),
        (f"/replicas/{replica['id']}", WRONG_REPLICAS),
    ):
        for body, param in wrong:
            error = await api.refuse("PATCH", path, 400, json=body)
            assert (body, error["param"]) == (body, param)
            assert "geheim" not in error["message"]
        await api.refuse("PATCH", path, 400, json={})
    for name in ("two words", "", "x" * 64, "a\nb"):
        body = {"labels": {name: "x"}}
        error = await api.refuse("PATCH", f"/replicas/{replica['id']}", 400, json=body)
        assert str(error["param"]).startswith("labels"), name
    infinite = '{"weight": 1e999}'
    headers = {"content-type": "application/json"}
    path = f"/replicas/{replica['id']}"
    await api.refuse("PATCH", path, 400, content=infinite, headers=headers)
    assert api.snapshot().version == version


async def test_a_replica_s_life_is_published(api: ControlApi) -> None:
    deployment = await make_deployment(api)
    replica = await make_replica(
        api,
        deployment,
        secret="engine-secret",
        weight=0.5,
        labels={"zone": "a", "gpu": "H200"},
        agent_url="http://10.0.0.7:9000/",
    )
    assert replica["has_secret"] is True
    path = f"/replicas/{replica['id']}"
    entry = model.Replica(
        id=replica["id"],
        base_url="http://10.0.0.7:8000",
        secret="engine-secret",
        weight=0.5,
        labels={"zone": "a", "gpu": "H200"},
        agent_url="http://10.0.0.7:9000",
    )
    assert published(api, deployment).replicas == (entry,)
    assert (await change(api, "POST", f"{path}/drain"))["is_draining"] is True
    assert published(api, deployment).replicas[0].is_draining is True
    await change(api, "POST", f"{path}/drain")
    assert (await change(api, "POST", f"{path}/undrain"))["is_draining"] is False
    await change(api, "PATCH", path, weight=0, labels={"zone": "b"}, secret=None, agent_url=None)
    assert published(api, deployment).replicas == (
        model.Replica(replica["id"], "http://10.0.0.7:8000", weight=0, labels={"zone": "b"}),
    )
    nulls = {"weight": None, "labels": None, "is_draining": None}
    changed = await change(api, "PATCH", path, **nulls)
    assert (changed["weight"], changed["labels"], changed["is_draining"]) == (1, {}, False)
    listing = f"/deployments/{deployment['id']}/replicas"
    assert (await api.get(listing))["data"] == [changed] == [await api.get(path)]
    assert (await change(api, "DELETE", path))["id"] == replica["id"]
    assert published(api, deployment).replicas == ()
    assert (await api.get(listing))["data"] == []
    for method, gone in (("GET", path), ("DELETE", path), ("POST", f"{path}/drain")):
        assert (await api.refuse(method, gone, 404))["param"] == "replica_id"
    await api.refuse("GET", f"/engines?replica_id={replica['id']}", 404)


async def test_one_engine_is_one_replica_of_a_deployment(api: ControlApi) -> None:
    deployment, other = await make_deployment(api), await make_deployment(api)
    first = await make_replica(api, deployment, base_url="http://localhost:80")
    path = f"/deployments/{deployment['id']}/replicas"
    for address in (
        "http://localhost:80",
        "HTTP://LOCALHOST",
        "http://127.0.0.1/",
        "http://localhost.:80/v1/",
    ):
        error = await api.refuse("POST", path, 409, json={"base_url": address})
        assert error["param"] == "base_url"
        assert first["id"] in error["message"]
    # Another scheme, port or prefix is another engine; another deployment may have it too.
    for address in ("https://localhost", "http://localhost:81", "http://localhost/a"):
        second = await make_replica(api, deployment, base_url=address)
    await make_replica(api, other, base_url="http://localhost")
    moved = {"base_url": "http://127.0.0.1:80"}
    await api.refuse("PATCH", f"/replicas/{second['id']}", 409, json=moved)
    await change(api, "PATCH", f"/replicas/{first['id']}", **moved)
    await change(api, "DELETE", f"/replicas/{first['id']}")
    await change(api, "PATCH", f"/replicas/{second['id']}", **moved)


async def test_replicas_that_were_one_engine_before_can_still_be_changed(
    api: ControlApi, module_database_url: str
) -> None:
    deployment = await make_deployment(api)
    for number in range(2):
        replica = await make_replica(api, deployment, base_url=f"http://10.0.0.7:{8000 + number}")
    execute(
        module_database_url,
        "UPDATE replicas SET base_url = 'http://10.0.0.7:8000' WHERE id = %s",
        replica["id"],
    )
    path = f"/replicas/{replica['id']}"
    await change(api, "PATCH", path, weight=2, base_url="http://10.0.0.7:8000")
    await change(api, "PATCH", path, base_url="http://10.0.0.7:8002")
    await api.refuse("PATCH", path, 409, json={"base_url": "http://10.0.0.7:8000"})


async def test_an_engine_added_twice_at_once_is_added_once(api: ControlApi) -> None:
    deployment = await make_deployment(api)
    path = f"/deployments/{deployment['id']}/replicas"
    addresses = [f"http://{host}:8000" for host in ("localhost", "LOCALHOST", "127.0.0.1")] * 3
    answers = await asyncio.gather(
        *(api.http.post(path, json={"base_url": address}) for address in addresses)
    )
    assert sorted(answer.status_code for answer in answers) == [201, *[409] * 8]
    assert len(published(api, deployment).replicas) == 1


async def test_a_deployment_is_removed_when_nothing_leads_there(api: ControlApi) -> None:
    first, second = await make_deployment(api), await make_deployment(api)
    replica, route = await make_replica(api, first), await make_route(api, first)
    path = f"/deployments/{first['id']}"
    assert route["name"] in (await api.refuse("DELETE", path, 409))["message"]
    moved = await change(api, "PATCH", f"/routes/{route['name']}", deployment=second["name"])
    assert (moved["deployment"], moved["id"]) == (second["name"], route["id"])
    assert api.snapshot().routes[route["name"]].deployment_id == second["id"]
    assert "replicas" in (await api.refuse("DELETE", path, 409))["message"]
    await change(api, "DELETE", f"/replicas/{replica['id']}")
    await change(api, "DELETE", path)
    assert first["id"] not in api.snapshot().deployments
    assert first["id"] not in {row["id"] for row in (await api.get("/deployments"))["data"]}
    await api.refuse("GET", path, 404)
    body = {"name": first["name"], "engine_model": "m"}
    again = await api.post("/deployments", **body)  # its name is free
    assert again["id"] != first["id"]
    missing = {"deployment": first["id"]}
    await api.refuse("PATCH", f"/routes/{route['name']}", 404, json=missing)


async def test_routes_fall_back_to_others_by_id_or_name(api: ControlApi) -> None:
    deployment = await make_deployment(api)
    small, large = await make_route(api, deployment), await make_route(api, deployment)
    route = await make_route(api, deployment, fallbacks=[large["id"], small["name"]])
    assert route["fallbacks"] == [large["name"], small["name"]]
    assert api.snapshot().routes[route["name"]].fallbacks == (large["name"], small["name"])
    path = f"/routes/{route['name']}"
    for wrong in (
        ["nothing"],
        [route["name"]],
        [route["id"]],
        [small["name"], small["id"]],
        [small["id"], small["id"]],
        [f"r{number}" for number in range(9)],
        "small",
    ):
        error = await api.refuse("PATCH", path, 400, json={"fallbacks": wrong})
        assert (wrong, error["param"]) == (wrong, "fallbacks")
    error = await api.refuse("DELETE", f"/routes/{small['name']}", 409)
    assert route["name"] in error["message"]
    await change(api, "PATCH", path, fallbacks=[large["name"]], queue={"size": 3})
    await change(api, "DELETE", f"/routes/{small['name']}")
    assert small["name"] not in api.snapshot().routes
    await change(api, "PATCH", path, queue=None)
    assert (await api.get(path))["queue"] == {
        "priority": None,
        "size": None,
        "deadline_seconds": None,
    }
    assert (await api.get(path))["fallbacks"] == [large["name"]]
    await change(api, "PATCH", path, fallbacks=None)
    assert api.snapshot().routes[route["name"]].fallbacks == ()
    await api.refuse("PATCH", path, 400, json={})
    await api.refuse("PATCH", path, 400, json={"name": "other"})


async def test_a_route_that_a_limit_names_is_kept(api: ControlApi) -> None:
    route = await make_route(api, await make_deployment(api))
    body: dict[str, Any] = {"metric": "requests", "amount": 5, "per_seconds": 1}
    limit = await api.post("/limits", scope="route", scope_id=route["name"], **body)
    assert "limit" in (await api.refuse("DELETE", f"/routes/{route['id']}", 409))["message"]
    await change(api, "DELETE", f"/limits/{limit['id']}")
    await change(api, "DELETE", f"/routes/{route['id']}")
    again = await api.post("/routes", name=route["name"], deployment=route["deployment"])
    assert api.snapshot().routes[route["name"]].id == again["id"] != route["id"]


async def test_a_removal_and_a_use_at_once_leave_nothing_dangling(api: ControlApi) -> None:
    deployment = await make_deployment(api)
    route = await make_route(api, deployment)
    for _ in range(10):
        other = await make_route(api, deployment)
        used, removed = await asyncio.gather(
            api.http.patch(f"/routes/{route['name']}", json={"fallbacks": [other["id"]]}),
            api.http.delete(f"/routes/{other['id']}"),
        )
        assert {used.status_code, removed.status_code} in ({200, 409}, {400, 200})
        for name in api.snapshot().routes[route["name"]].fallbacks:
            assert name in api.snapshot().routes
        await change(api, "PATCH", f"/routes/{route['name']}", fallbacks=[])

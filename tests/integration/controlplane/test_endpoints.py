"""Organizations, projects, deployments, routes, prices; and how wrong requests are answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest

from tests.fixtures.control_api import ControlApi, eventually

SLASHED = "hf.co/mistralai/Mistral-7B:Q4_K_M"


async def make_route(api: ControlApi, name: str = SLASHED) -> Any:
    deployment = await api.post("/deployments", name=f"d of {name}", engine_model="m")
    return await api.post("/routes", name=name, deployment=deployment["name"])


async def test_organizations_and_projects(api: ControlApi) -> None:
    assert await api.get("/organizations") == {"data": []}
    book = await api.post("/price-books", name="default", currency="EUR")
    made = await api.post("/organizations", name="  Acme ", time_zone="Europe/Zurich")
    assert (made["name"], made["time_zone"]) == ("Acme", "Europe/Zurich")
    assert made["price_book_id"] == book["id"]
    assert (await api.get("/organizations"))["data"] == [made]
    project = await api.post("/projects", name="Support")
    assert project["organization_id"] == made["id"]
    assert (await api.get("/projects", organization_id=made["id"]))["data"] == [project]
    await api.refuse_filters("/projects", organization_id="org_none")
    same = {"name": "Support", "organization_id": made["id"]}
    assert (await api.refuse("POST", "/projects", 409, json=same))["param"] == "name"
    assert (await api.refuse("POST", "/organizations", 409, json={"name": "Acme"}))["param"]


async def test_deployments_replicas_and_routes_reach_the_snapshot(api: ControlApi) -> None:
    deployment = await api.post("/deployments", name="gpu-a", engine_model="org/model")
    replica = await api.post(
        f"/deployments/{deployment['id']}/replicas",
        base_url="http://10.0.0.7:8000/prefix/v1/",
        secret="engine-secret",
    )
    assert replica["base_url"] == "http://10.0.0.7:8000/prefix"
    assert replica["has_secret"] is True
    route = await api.post("/routes", name=SLASHED, deployment=deployment["id"])
    assert (await api.get("/routes"))["data"] == [route]
    listed = await api.http.get("/deployments")
    assert listed.json()["data"][0]["replicas"] == [replica]
    assert "engine-secret" not in listed.text
    snapshot = api.snapshot()
    assert snapshot.routes[SLASHED].deployment_id == deployment["id"]
    published = snapshot.deployments[deployment["id"]]
    assert published.engine_model == "org/model"
    assert published.replicas[0].base_url == "http://10.0.0.7:8000/prefix"
    assert published.replicas[0].secret == "engine-secret"
    assert api.snapshot_path.stat().st_mode & 0o777 == 0o600
    assert api.snapshot_path.parent.stat().st_mode & 0o777 == 0o700


async def test_names_are_unique(api: ControlApi) -> None:
    route = await make_route(api)
    for path, body in (
        ("/deployments", {"name": route["deployment"], "engine_model": "m"}),
        ("/routes", {"name": SLASHED, "deployment": route["deployment"]}),
    ):
        error = await api.refuse("POST", path, 409, json=body)
        assert error["param"] == "name"


async def test_prices_are_dated_and_exact(api: ControlApi) -> None:
    await api.post("/price-books", name="default", currency="USD")
    route = await make_route(api)
    first = await api.post(
        "/prices",
        route=SLASHED,
        input_per_million="3.00",
        output_per_million="0.000000000001",
        effective_at="2026-01-01T00:00:00+01:00",
    )
    assert first["input_per_million"] == "3"
    assert first["output_per_million"] == "0.000000000001"
    assert first["cached_input_per_million"] is None
    assert first["effective_at"] == "2025-12-31T23:00:00Z"
    assert first["currency"] == "USD"
    second = await api.post(
        "/prices",
        route=SLASHED,
        input_per_million=4,
        cached_input_per_million="0",
        output_per_million="1e1",
        price_book="default",
    )
    assert second["cached_input_per_million"] == "0"
    assert second["output_per_million"] == "10"
    later = await api.post(
        "/prices",
        route=SLASHED,
        input_per_million="5",
        output_per_million="5",
        effective_at="2100-01-01T00:00:00Z",
    )
    current = (await api.get("/prices"))["data"]
    assert [price["id"] for price in current] == [second["id"]]
    assert current[0]["route"] == SLASHED
    history = (await api.get("/prices/history", route=SLASHED, price_book="default"))["data"]
    assert [price["id"] for price in history] == [later["id"], second["id"], first["id"]]
    published = api.snapshot().prices
    assert [price.id for price in published] == [later["id"], second["id"]]
    assert published[1].cached_input_per_million == "0"
    assert published[1].route_id == route["id"]
    assert Decimal(published[0].input_per_million) == 5
    await make_route(api, "other")
    other = await api.post("/prices", route="other", input_per_million="1", output_per_million="1")
    for name, price in ((SLASHED, second), ("other", other)):
        held = (await api.get("/prices", route=name, price_book="default"))["data"]
        assert [one["id"] for one in held] == [price["id"]]
    await api.refuse("GET", "/prices?route=none", 404)
    await api.refuse("GET", "/prices?price_book=none", 404)


async def test_a_price_in_the_wrong_unit_is_warned_of(api: ControlApi) -> None:
    await api.post("/price-books", name="b", currency="USD")
    await make_route(api)
    for amount, warnings in (("2000", 1), ("0.00001", 1), ("0", 0), ("0.6", 0)):
        body = {"route": SLASHED, "output_per_million": "1", "input_per_million": amount}
        price = await api.post("/prices", **body)
        assert (amount, len(price["warnings"])) == (amount, warnings)


async def test_prices_that_are_refused(api: ControlApi) -> None:
    good = {"route": SLASHED, "input_per_million": "1", "output_per_million": "1"}
    assert (await api.refuse("POST", "/prices", 404, json=good))["param"] == "route"
    await make_route(api)
    assert (await api.refuse("POST", "/prices", 400, json=good))["param"] == "price_book"
    await api.post("/price-books", name="b", currency="USD")
    for field, value in (
        ("input_per_million", 0.15),
        ("input_per_million", "-1"),
        ("input_per_million", "NaN"),
        ("input_per_million", "1e999999999"),
        ("input_per_million", "0.0000000000001"),
        ("input_per_million", True),
        ("input_per_million", None),
        ("output_per_million", "1,50"),
        ("cached_input_per_million", ""),
        ("effective_at", "2026-01-01T00:00:00"),
        ("effective_at", "yesterday"),
        ("effective_at", "0001-01-01T00:00:00+14:00"),
        ("effective_at", "9999-12-31T23:59:59-12:00"),
    ):
        error = await api.refuse("POST", "/prices", 400, json={**good, field: value})
        assert error["param"] == field, (field, value, error)
    missing = await api.refuse("POST", "/prices", 404, json={**good, "price_book": "none"})
    assert missing["param"] == "price_book"
    await api.post("/prices", **good, effective_at="2026-01-01T00:00:00Z")
    same = {**good, "effective_at": "2026-01-01T00:00:00Z"}
    assert (await api.refuse("POST", "/prices", 409, json=same))["param"] == "effective_at"
    past = {**good, "effective_at": "2026-02-01T00:00:00Z"}
    assert (await api.refuse("POST", "/prices", 400, json=past))["param"] == "effective_at"


WRONG_BODIES: list[tuple[str, dict[str, Any], str]] = [
    ("/organizations", {}, "name"),
    ("/organizations", {"name": " "}, "name"),
    ("/organizations", {"name": "x" * 201}, "name"),
    ("/organizations", {"name": 7}, "name"),
    ("/organizations", {"name": "a\u0000b"}, "name"),
    ("/organizations", {"name": "a\nb"}, "name"),
    ("/organizations", {"name": "x", "time_zone": "Mars/Base"}, "time_zone"),
    ("/organizations", {"name": "x", "time_zone": "localtime"}, "time_zone"),
    ("/organizations", {"name": "x", "time_zone": "Factory"}, "time_zone"),
    ("/organizations", {"name": "x", "colour": "red"}, "colour"),
    ("/organizations", {"name": "x", "c" * 9000: "red"}, "c" * 200 + "…"),
    ("/routes", {"name": "two words", "deployment": "d"}, "name"),
    ("/keys", {"name": "k", "allowed_routes": "all"}, "allowed_routes"),
    ("/keys", {"name": "k", "allowed_routes": ["ok", 5]}, "allowed_routes.1"),
    ("/keys", {"name": "k", "expires_at": "2100-01-01T00:00:00"}, "expires_at"),
    ("/keys/key_x/rotate", {"grace_seconds": -1}, "grace_seconds"),
    ("/keys/key_x/rotate", {"grace_seconds": "60"}, "grace_seconds"),
    ("/sessions", {"email": "a@b"}, "password"),
    ("/sessions", {"email": "a@b", "password": "x" * 2000}, "password"),
    ("/price-books", {"name": "x", "currency": "eur"}, "currency"),
]


async def test_wrong_bodies_are_400_and_name_the_field(api: ControlApi) -> None:
    for path, body, param in WRONG_BODIES:
        error = await api.refuse("POST", path, 400, json=body)
        assert (path, error["param"]) == (path, param)
        assert error["type"] == "invalid_request_error"
        assert len(error["message"]) < 500


NO_ADDRESSES = [
    "ftp://h",
    "10.0.0.7:8000",
    "http://",
    "http://user:geheim@h:1",
    "http://h/?a=1",
    "http://h:99999",
    "http://h/#x",
    "http://a b",
    "file:///etc/passwd",
]


async def test_engine_addresses_that_are_none(api: ControlApi) -> None:
    deployment = await api.post("/deployments", name="d", engine_model="m")
    path = f"/deployments/{deployment['id']}/replicas"
    for base_url in NO_ADDRESSES:
        error = await api.refuse("POST", path, 400, json={"base_url": base_url})
        assert (base_url, error["param"]) == (base_url, "base_url")
        assert "geheim" not in error["message"]


UNREADABLE_BODIES = [
    (b"{", "application/json"),
    (b"\xff\xfe", "application/json"),
    (b"[]", "application/json"),
    (b"null", "application/json"),
    (b"", "application/json"),
    (b"[" * 100_000, "application/json"),
    (b'{"name": "x"}', "text/plain"),
    (b"name=x", "application/x-www-form-urlencoded"),
    (b'{"name": "\\ud800"}', "application/json"),
]


async def test_unreadable_bodies_are_400(api: ControlApi) -> None:
    for content, content_type in UNREADABLE_BODIES:
        headers = {"content-type": content_type}
        await api.refuse("POST", "/organizations", 400, content=content, headers=headers)
    assert await api.get("/organizations") == {"data": []}


async def test_a_huge_body_is_413(api: ControlApi) -> None:
    body = b'{"name": "' + b"x" * 2_000_000 + b'"}'
    headers = {"content-type": "application/json"}
    await api.refuse("POST", "/organizations", 413, content=body, headers=headers)

    async def in_pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100_000

    await api.refuse("POST", "/organizations", 413, content=in_pieces(), headers=headers)


WRONG_QUERIES = [
    ("/requests?limit=0", "limit"),
    ("/requests?limit=501", "limit"),
    ("/requests?limit=x", "limit"),
    ("/requests?project_id=%00", "project_id"),
    ("/usage?group_by=colour", "group_by"),
    ("/usage?from=yesterday", "from"),
    ("/usage?from=2026-01-01T00:00:00", "from"),
    ("/usage?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "from"),
    ("/usage?from=1900-01-01T00:00:00Z", "from"),
    ("/usage?group_by=hour&from=2025-01-01T00:00:00Z&to=2026-01-01T00:00:00Z", "from"),
    ("/usage?time_zone=Mars", "time_zone"),
    ("/dead-letters?limit=0", "limit"),
]


async def test_wrong_queries_are_400_and_name_the_parameter(api: ControlApi) -> None:
    for path, param in WRONG_QUERIES:
        error = await api.refuse("GET", path, 400)
        assert (path, error["param"]) == (path, param)


async def test_unknown_paths_are_404_and_never_redirect(api: ControlApi) -> None:
    for path in ("/nothing", "/keys/", "//keys", "/keys%2F..%2Fme", "/openapi.json"):
        request = api.http.build_request("GET", "http://control/api/v1/x")
        request.url = request.url.copy_with(raw_path=f"/api/v1{path}".encode())
        answer = await api.http.send(request)
        assert answer.status_code == 404, path
        assert answer.json()["error"]["code"] == "not_found", path


async def test_docs_are_not_served(api: ControlApi) -> None:
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert (await api.http.get(f"http://control{path}")).status_code == 404


async def test_a_wrong_method_is_405(api: ControlApi) -> None:
    answer = await api.http.put("/keys")
    assert answer.status_code == 405
    assert answer.json()["error"]["code"] == "method_not_allowed"
    assert "GET" in answer.headers["allow"]


async def test_ids_that_cannot_be_stored_are_no_500(api: ControlApi) -> None:
    await api.refuse("POST", "/keys/a%00b/revoke", 400)
    body = {"base_url": "http://h"}
    await api.refuse("POST", "/deployments/a%00b/replicas", 400, json=body)


async def test_what_nobody_expected_is_500_in_the_shape_and_logged(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("gateway.controlplane.identity.repository.list_organizations", fail)
    error = await api.refuse("GET", "/organizations", 500)
    assert error["type"] == "server_error"
    assert "secret detail" not in error["message"]
    assert "req_" in error["message"]
    assert "secret detail" in caplog.text


async def test_answers_are_not_cached(api: ControlApi) -> None:
    answer = await api.http.get("/keys")
    assert answer.headers["cache-control"] == "no-store"


async def test_health_and_readiness_need_no_token(api: ControlApi) -> None:
    await eventually(lambda: api.control_plane.publisher.is_published)
    for path in ("/health", "/ready"):
        answer = await api.http.get(path, headers={"authorization": ""})
        assert answer.status_code == 200, answer.text

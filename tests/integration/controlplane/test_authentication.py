"""Who gets in: every endpoint against every kind of token."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import argon2
import psycopg
import pytest
from fastapi import FastAPI

from gateway.controlplane.bootstrap import bootstrap
from gateway.controlplane.config import ControlPlaneConfig, ControlPlaneConfigError
from tests.fixtures.control_api import (
    EMAIL,
    INTERNAL_TOKEN,
    PASSWORD,
    SECRET,
    ControlApi,
    make_bootstrap,
    started,
)

OPEN = {("GET", "/health"), ("GET", "/ready"), ("POST", "/sessions")}


def endpoints_of(app: FastAPI) -> set[tuple[str, str]]:
    """Return every method and path of the application object, so that none can be forgotten."""
    return {
        (method.upper(), re.sub(r"\{[^}]+\}", "some_id", path).removeprefix("/api/v1"))
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }


@pytest.fixture
async def bootstrapped(api: ControlApi, database_url: str) -> ControlApi:
    await asyncio.to_thread(bootstrap, database_url, make_bootstrap())
    return api


async def sign_in(api: ControlApi) -> str:
    signed_in = await api.post("/sessions", email=EMAIL, password=PASSWORD)
    return str(signed_in["token"])


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_every_endpoint_but_three_refuses_everybody_else(bootstrapped: ControlApi) -> None:
    endpoints = endpoints_of(bootstrapped.app)
    assert len(endpoints) > 25
    assert endpoints >= OPEN
    wrong: list[dict[str, str]] = [
        {"authorization": ""},
        bearer("wrong"),
        bearer(SECRET),  # a customer's key, valid in the data plane
        bearer("schlüssel"),
        {"authorization": "Basic YWRtaW46YWRtaW4="},
    ]
    for method, path in sorted(endpoints - OPEN):
        for headers in wrong:
            encoded = {name: value.encode("latin-1") for name, value in headers.items()}
            error = await bootstrapped.refuse(method, path, 401, headers=encoded)
            assert error["type"] == "authentication_error"
            assert SECRET not in error["message"]


async def test_a_data_plane_token_opens_receipts_alone(bootstrapped: ControlApi) -> None:
    headers = bearer(INTERNAL_TOKEN)
    for method, path in sorted(endpoints_of(bootstrapped.app) - OPEN):
        if path == "/receipts/some_id":
            error = await bootstrapped.refuse(method, path, 400, headers=headers)
            assert error["param"] == "project_id"
            project = {"project_id": "proj_x"}
            await bootstrapped.refuse(method, path, 404, headers=headers, params=project)
        else:
            await bootstrapped.refuse(method, path, 403, headers=headers)


async def test_a_session_opens_until_it_ends(bootstrapped: ControlApi) -> None:
    headers = bearer(await sign_in(bootstrapped))
    me = await bootstrapped.http.get("/me", headers=headers)
    assert me.json() == {"id": me.json()["id"], "email": EMAIL, "role": "admin"}
    assert me.json()["id"].startswith("mem_")
    other = bearer(await sign_in(bootstrapped))
    ended = await bootstrapped.http.delete("/sessions/current", headers=headers)
    assert ended.status_code == 204
    assert ended.content == b""
    await bootstrapped.refuse("GET", "/me", 401, headers=headers)
    assert (await bootstrapped.http.get("/me", headers=other)).status_code == 200


async def test_a_session_expires(bootstrapped: ControlApi, database_url: str) -> None:
    headers = bearer(await sign_in(bootstrapped))
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE sessions SET expires_at = now()")
    await bootstrapped.refuse("GET", "/me", 401, headers=headers)


async def test_the_admin_token_is_nobody_in_particular(api: ControlApi) -> None:
    assert await api.get("/me") == {"id": None, "email": None, "role": "admin"}
    await api.refuse("DELETE", "/sessions/current", 400)


async def test_the_scheme_may_be_written_in_any_way(api: ControlApi) -> None:
    token = api.control_plane.config.admin_token
    for form in ("bearer {}", "BEARER {}", "Bearer  {}", "Bearer\t{}", "  Bearer {}  "):
        answer = await api.http.get("/me", headers={"authorization": form.format(token)})
        assert (form, answer.status_code) == (form, 200)


async def test_malformed_authorization_is_401(api: ControlApi) -> None:
    token = api.control_plane.config.admin_token
    for form in ("Bearer", "Bearer ", "Bearer a b", "{}", "Token {}", "Bearer {}x"):
        answer = await api.http.get("/me", headers={"authorization": form.format(token)})
        assert (form, answer.status_code) == (form, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert token not in answer.text


async def test_two_authorization_headers_are_refused(api: ControlApi) -> None:
    token = api.control_plane.config.admin_token
    request = api.http.build_request("GET", "/me")
    request.headers = type(request.headers)(
        [("authorization", f"Bearer {token}"), ("authorization", "Bearer x")]
    )
    assert (await api.http.send(request)).status_code == 401


async def test_tokens_and_passwords_are_stored_as_hashes_only(
    bootstrapped: ControlApi, database_url: str
) -> None:
    token = await sign_in(bootstrapped)
    with psycopg.connect(database_url) as connection:
        stored = str(connection.execute("SELECT * FROM sessions").fetchall())
        stored += str(connection.execute("SELECT * FROM members").fetchall())
        stored += str(connection.execute("SELECT * FROM api_keys").fetchall())
    assert token not in stored
    assert PASSWORD not in stored
    assert SECRET not in stored
    assert "$argon2id$" in stored


async def test_wrong_password_and_unknown_email_look_the_same(bootstrapped: ControlApi) -> None:
    wrong = await bootstrapped.refuse(
        "POST", "/sessions", 401, json={"email": EMAIL, "password": "wrong"}
    )
    unknown = await bootstrapped.refuse(
        "POST", "/sessions", 401, json={"email": "nobody@example.com", "password": "wrong"}
    )
    assert wrong == unknown
    assert wrong["code"] == "wrong_credentials"


async def test_the_email_may_be_written_in_any_case(bootstrapped: ControlApi) -> None:
    await bootstrapped.post("/sessions", email=f" {EMAIL.upper()} ", password=PASSWORD)


async def test_too_many_failures_have_to_wait(bootstrapped: ControlApi) -> None:
    bootstrapped.control_plane.login_limit._failures = 3
    wrong = {"email": EMAIL, "password": "wrong"}
    answers = await asyncio.gather(
        *(bootstrapped.http.post("/sessions", json=wrong) for _ in range(5))
    )
    assert sorted(answer.status_code for answer in answers) == [401] * 3 + [429] * 2
    refused = await bootstrapped.http.post("/sessions", json={"email": EMAIL, "password": PASSWORD})
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 300
    other = await bootstrapped.http.post("/sessions", json={**wrong, "email": "b@example.com"})
    assert other.status_code == 401


async def test_success_forgets_failures(bootstrapped: ControlApi) -> None:
    bootstrapped.control_plane.login_limit._failures = 2
    for _ in range(3):
        await bootstrapped.refuse(
            "POST", "/sessions", 401, json={"email": EMAIL, "password": "wrong"}
        )
        await sign_in(bootstrapped)


async def test_a_hash_with_old_parameters_is_renewed_at_sign_in(
    bootstrapped: ControlApi, database_url: str
) -> None:
    weak = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE members SET password_hash = %s", [weak])
    await sign_in(bootstrapped)
    with psycopg.connect(database_url) as connection:
        (stored,) = connection.execute("SELECT password_hash FROM members").fetchall()
    assert not argon2.PasswordHasher().check_needs_rehash(stored[0])
    await sign_in(bootstrapped)


async def test_expired_sessions_are_removed(bootstrapped: ControlApi, database_url: str) -> None:
    await sign_in(bootstrapped)
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE sessions SET expires_at = %s", [datetime.now(UTC) - timedelta(days=1)]
        )
    await sign_in(bootstrapped)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (1,)


@pytest.mark.parametrize("token", ["", "   ", "change-me"])
def test_no_process_without_a_real_admin_token(token: str) -> None:
    with pytest.raises(ControlPlaneConfigError, match="admin token"):
        ControlPlaneConfig(database_url="postgresql://", admin_token=token)


def test_the_tokens_must_differ() -> None:
    with pytest.raises(ControlPlaneConfigError, match="differ"):
        ControlPlaneConfig(
            database_url="postgresql://", admin_token="x" * 20, internal_token="x" * 20
        )


async def test_without_internal_token_nobody_is_a_data_plane(
    database_url: str, tmp_path: Path
) -> None:
    async with started(database_url, state_dir=tmp_path, internal_token=None) as api:
        await api.refuse("GET", "/receipts/req_x?project_id=p", 401, headers=bearer(INTERNAL_TOKEN))


def test_secrets_are_not_in_the_configuration_s_text() -> None:
    config = ControlPlaneConfig(
        database_url="postgresql://u:geheim@h/d", admin_token="x" * 20, internal_token="y" * 20
    )
    assert "geheim" not in repr(config)
    assert "xxxx" not in repr(config)
    assert SECRET not in repr(make_bootstrap())
    assert PASSWORD not in repr(make_bootstrap())

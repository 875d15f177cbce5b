"""The first start makes what serving needs; later starts only what is missing."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from gateway.controlplane.bootstrap import bootstrap
from gateway.controlplane.identity.api_keys import hash_secret
from tests.fixtures.control_api import (
    EMAIL,
    PASSWORD,
    SECRET,
    ControlApi,
    make_bootstrap,
    started,
)

TABLES = (
    "organizations",
    "projects",
    "members",
    "api_keys",
    "deployments",
    "replicas",
    "routes",
    "price_books",
    "prices",
)


def contents(database_url: str) -> dict[str, list[Any]]:
    with psycopg.connect(database_url) as connection:
        return {
            table: connection.execute(
                sql.SQL("SELECT * FROM {} ORDER BY 1").format(sql.Identifier(table))
            ).fetchall()
            for table in TABLES
        }


def version(database_url: str) -> int:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("SELECT version FROM config_version").fetchone()
    assert row is not None
    return int(row[0])


def test_a_first_start_makes_everything_and_a_second_nothing(database_url: str) -> None:
    first = bootstrap(database_url, make_bootstrap())
    assert first.is_new_admin
    assert first.is_new_key
    assert set(first.created) == {
        "organization",
        "project",
        "admin",
        "price book",
        "deployment",
        "replica",
        "route",
        "price",
        "API key",
    }
    made, made_version = contents(database_url), version(database_url)
    assert {table: len(rows) for table, rows in made.items()} == dict.fromkeys(TABLES, 1)
    again = make_bootstrap(
        admin_password="other", api_key_secret="fb-" + "o" * 43, features=("chat",)
    )
    second = bootstrap(database_url, again)
    assert second.created == ()
    assert not second.is_new_admin
    assert not second.is_new_key
    assert not second.is_engine_changed
    assert second.route_id == first.route_id
    assert contents(database_url) == made
    assert version(database_url) == made_version


async def test_what_was_made_serves(database_url: str, tmp_path: Path) -> None:
    result = await asyncio.to_thread(bootstrap, database_url, make_bootstrap())
    async with started(database_url, state_dir=tmp_path) as api:
        await api.post("/sessions", email=EMAIL, password=PASSWORD)
        await api.make_key()
        snapshot = api.snapshot()
        entry = snapshot.keys[hash_secret(SECRET).hex()]
        assert entry.organization_id == result.organization_id
        assert entry.price_book_id == result.price_book_id
        assert snapshot.routes["smollm2"].deployment_id == result.deployment_id
        (price,) = snapshot.prices
        assert (price.input_per_million, price.cached_input_per_million) == ("0.15", "0.075")
        assert (price.output_per_million, price.currency) == ("0.6", "USD")
        (replica,) = snapshot.deployments[result.deployment_id].replicas
        assert replica.base_url == "http://127.0.0.1:8090"


def test_the_engine_may_move(database_url: str) -> None:
    first = bootstrap(database_url, make_bootstrap())
    before = version(database_url)
    moved = make_bootstrap(replica_base_url="http://127.0.0.1:9999/v1", engine_model="other")
    second = bootstrap(database_url, moved)
    assert second.is_engine_changed
    assert second.created == ()
    assert second.replica_id == first.replica_id
    assert version(database_url) > before
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT base_url FROM replicas").fetchall() == [
            ("http://127.0.0.1:9999",)
        ]
        assert connection.execute("SELECT engine_model FROM deployments").fetchall() == [("other",)]


async def test_the_engine_does_not_move_to_where_a_sibling_is(
    database_url: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(bootstrap, database_url, make_bootstrap())
    async with started(database_url, state_dir=tmp_path) as api:
        await api.post("/deployments/local/replicas", base_url="http://localhost:9999")
    moved = make_bootstrap(replica_base_url="http://127.0.0.1:9999", engine_model="other")
    await asyncio.to_thread(bootstrap, database_url, moved)
    replicas = contents(database_url)["replicas"]
    addresses = {value for row in replicas for value in row if str(value).startswith("http")}
    assert addresses == {"http://127.0.0.1:8090", "http://localhost:9999"}
    assert not (await asyncio.to_thread(bootstrap, database_url, moved)).is_engine_changed


def test_a_price_set_by_an_admin_is_kept(database_url: str) -> None:
    bootstrap(database_url, make_bootstrap())
    before = contents(database_url)["prices"]
    bootstrap(database_url, make_bootstrap(input_per_million=Decimal(9)))
    assert contents(database_url)["prices"] == before


def test_a_revoked_first_key_is_not_replaced(database_url: str) -> None:
    bootstrap(database_url, make_bootstrap())
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE api_keys SET revoked_at = now()")
    assert not bootstrap(database_url, make_bootstrap(api_key_secret="fb-x" * 10)).is_new_key


def test_another_model_gets_a_route_and_a_price_of_its_own(database_url: str) -> None:
    bootstrap(database_url, make_bootstrap())
    result = bootstrap(
        database_url, make_bootstrap(route="llama", deployment_name="gpu", engine_model="Llama")
    )
    assert set(result.created) == {"deployment", "replica", "route", "price"}


def test_first_starts_at_the_same_time_make_one_of_each(database_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: bootstrap(database_url, make_bootstrap()), range(4)))
    assert sum(result.is_new_key for result in results) == 1
    assert {table: len(rows) for table, rows in contents(database_url).items()} == dict.fromkeys(
        TABLES, 1
    )


def test_a_failure_leaves_nothing(database_url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        bootstrap(database_url, make_bootstrap(replica_base_url="nowhere"))
    assert all(rows == [] for rows in contents(database_url).values())


def test_a_short_secret_is_refused(database_url: str) -> None:
    with pytest.raises(ValueError, match="too short"):
        bootstrap(database_url, make_bootstrap(api_key_secret="fb-short"))


def test_a_second_organization_shares_the_admin(database_url: str) -> None:
    bootstrap(database_url, make_bootstrap())
    other = make_bootstrap(organization_name="Other", api_key_secret="fb-" + "o" * 43)
    second = bootstrap(database_url, other)
    assert set(second.created) == {"organization", "project", "API key"}
    assert not second.is_new_admin


def test_a_route_stays_where_an_admin_led_it(database_url: str) -> None:
    first = bootstrap(database_url, make_bootstrap())
    second = bootstrap(database_url, make_bootstrap(deployment_name="vllm"))
    assert set(second.created) == {"deployment", "replica"}
    assert second.route_id == first.route_id
    assert routes_lead_to(database_url) == [first.deployment_id]
    change(database_url, "UPDATE routes SET deployment_id = %s", second.deployment_id)
    assert not bootstrap(database_url, make_bootstrap()).is_engine_changed
    assert routes_lead_to(database_url) == [second.deployment_id]


async def test_only_the_replica_that_a_start_made_follows_the_engine(
    database_url: str, tmp_path: Path
) -> None:
    first = await asyncio.to_thread(bootstrap, database_url, make_bootstrap())
    moved = make_bootstrap(replica_base_url="http://127.0.0.1:9999")
    async with started(database_url, state_dir=tmp_path) as api:
        [made] = (await api.get("/deployments/local/replicas"))["data"]
        assert made["labels"] == {"forebay": "embedded"}
        other = await api.post("/deployments/local/replicas", base_url="http://10.0.0.1:8000")
        second = await asyncio.to_thread(bootstrap, database_url, moved)
        assert (second.replica_id, second.is_engine_changed) == (first.replica_id, True)
        assert await addresses(api) == ["http://127.0.0.1:9999", "http://10.0.0.1:8000"]
        assert (await api.http.delete(f"/replicas/{made['id']}")).status_code == 200
        third = await asyncio.to_thread(bootstrap, database_url, make_bootstrap())
        assert (third.replica_id, third.is_engine_changed, third.created) == (None, False, ())
        assert await addresses(api) == ["http://10.0.0.1:8000"]
        assert (await api.http.delete(f"/replicas/{other['id']}")).status_code == 200
        await asyncio.to_thread(bootstrap, database_url, make_bootstrap())
        assert await addresses(api) == []


def test_a_replica_without_the_label_is_an_admins(database_url: str) -> None:
    first = bootstrap(database_url, make_bootstrap())
    change(database_url, "UPDATE replicas SET labels = %s", '{"zone": "a"}')
    before = contents(database_url)
    moved = make_bootstrap(replica_base_url="http://127.0.0.1:9999")
    assert bootstrap(database_url, moved).replica_id is None
    assert contents(database_url) == before
    # Made by a release that knew no label.
    change(database_url, "UPDATE replicas SET labels = %s", "{}")
    assert bootstrap(database_url, moved).replica_id == first.replica_id
    [replica] = contents(database_url)["replicas"]
    assert "http://127.0.0.1:9999" in replica
    assert {"forebay": "embedded"} in replica


def change(database_url: str, statement: LiteralString, value: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(statement, [value])


def routes_lead_to(database_url: str) -> list[str]:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT deployment_id FROM routes").fetchall()
    return [row[0] for row in rows]


async def addresses(api: ControlApi) -> list[str]:
    replicas = (await api.get("/deployments/local/replicas"))["data"]
    return [replica["base_url"] for replica in replicas]

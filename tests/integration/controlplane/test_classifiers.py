"""Uploaded weights: versions, going back, and their way to every place beside the Snapshot."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from gateway.controlplane.classifiers_api.endpoints import MAX_WEIGHTS_BYTES
from gateway.snapshot.redis_weights import RedisWeights
from gateway.snapshot.weights import FileWeights
from routing.complexity.predictor import SHIPPED, decode_weights, read_weights
from tests.fixtures.control_api import ControlApi, eventually, started
from tests.unit.dataplane.test_classifier_registry import make_weights


async def upload(api: ControlApi, data: bytes, status: int = 201, name: str = "own") -> Any:
    reply: httpx.Response = await api.http.post(f"/classifiers/{name}/versions", content=data)
    assert reply.status_code == status, reply.text
    return reply.json()


def in_effect(api: ControlApi) -> str:
    return api.snapshot().classifiers["own"].sha256


async def test_versions_and_the_way_back(api: ControlApi) -> None:
    place = FileWeights(api.snapshot_path.parent)
    (one, first), (two, second) = make_weights(1), make_weights(2)
    added = await upload(api, first)
    assert added["version"] == 1
    assert added["is_current"]
    assert added["sha256"] == one
    assert added["figures"] == {
        "trained_as": "own-1",
        "pairs": ["a / b"],
        "datasets": ["all"],
        "seed": 1,
    }
    assert in_effect(api) == one
    assert place.read_now(one) == first
    assert (await upload(api, first, 200))["version"] == 1  # in effect already
    assert (await upload(api, second))["version"] == 2
    assert in_effect(api) == two
    assert await place.list_held() == {two}  # what is in effect nowhere is taken away

    back = await api.post("/classifiers/own/rollback", 200)
    assert (back["version"], in_effect(api), place.read_now(one)) == (1, one, first)
    await api.refuse("POST", "/classifiers/own/rollback", 409, json={})
    forth = await api.post("/classifiers/own/rollback", 200, version=2)
    assert (forth["version"], in_effect(api)) == (2, two)
    # What was gone back from can be uploaded again, as a version of its own.
    assert (await upload(api, first))["version"] == 3
    listed = (await api.get("/classifiers"))["data"]
    assert [(each["version"], each["is_current"]) for each in listed] == [
        (3, True),
        (2, False),
        (1, False),
    ]
    assert decode_weights(place.read_now(one) or b"").header.name == "own-1"


async def test_what_was_left_is_not_gone_back_to(api: ControlApi) -> None:
    for number in (1, 2):
        await upload(api, make_weights(number)[1])
    assert (await api.post("/classifiers/own/rollback", 200))["version"] == 1
    await upload(api, make_weights(3)[1])
    # What served before the third was the first; the second had been left.
    assert (await api.post("/classifiers/own/rollback", 200))["version"] == 1
    # By its number it may be had all the same, and counts again.
    assert (await api.post("/classifiers/own/rollback", 200, version=2))["version"] == 2
    await upload(api, make_weights(4)[1])
    assert (await api.post("/classifiers/own/rollback", 200))["version"] == 2


async def test_below_the_first_upload_is_what_is_shipped_under_the_name(api: ControlApi) -> None:
    name = SHIPPED.stem
    place = FileWeights(api.snapshot_path.parent)
    (one, first), (_, second) = make_weights(1), make_weights(2)
    await upload(api, first, name=name)
    assert api.snapshot().classifiers[name].sha256 == one
    back = await api.post(f"/classifiers/{name}/rollback", 200)
    assert (back["version"], back["is_current"], back["created_at"]) == (0, True, None)
    assert back["sha256"] == read_weights(SHIPPED).digest
    # The Snapshot names nothing, and so the data plane's own serve.
    assert name not in api.snapshot().classifiers
    assert await place.list_held() == set()
    await api.refuse("POST", f"/classifiers/{name}/rollback", 409, json={})

    await upload(api, second, name=name)
    assert (await api.post(f"/classifiers/{name}/rollback", 200, version=0))["version"] == 0
    listed = [each for each in (await api.get("/classifiers"))["data"] if each["name"] == name]
    assert [(each["version"], each["is_current"]) for each in listed] == [
        (2, False),
        (1, False),
        (0, True),
    ]
    assert (await api.post(f"/classifiers/{name}/rollback", 200, version=1))["sha256"] == one


async def test_what_a_data_plane_would_refuse_is_refused(api: ControlApi) -> None:
    _, data = make_weights(1)
    for wrong in (b"", b"{}", data[:-1] + b"\0", data + b"\0"):
        refused = await upload(api, wrong, 400)
        assert "cannot be used" in refused["error"]["message"]
    # They may be larger than other bodies, but not endless.
    refused = await upload(api, b"x" * (2 * 1024 * 1024), 400)
    assert "cannot be used" in refused["error"]["message"]
    await upload(api, b"x" * (MAX_WEIGHTS_BYTES + 1), 413)
    for name in ("..", "a b", "x" * 101):
        reply = await api.http.post(f"/classifiers/{name}/versions", content=data)
        assert reply.status_code in {400, 404}
    await api.refuse("POST", "/classifiers/none/rollback", 404, json={})
    await upload(api, data)
    await api.refuse("POST", "/classifiers/own/rollback", 404, json={"version": 7})
    await api.refuse("POST", "/classifiers/own/rollback", 400, json={"version": 0})


async def test_both_places_get_them_and_lost_ones_come_again(
    database_url: str, tmp_path: Path, valkey_url: str
) -> None:
    sha256, data = make_weights(1)
    async with started(database_url, state_dir=tmp_path, redis_url=valkey_url) as api:
        await upload(api, data)
        files, server = FileWeights(api.snapshot_path.parent), RedisWeights(valkey_url)
        assert files.read_now(sha256) == data
        assert await server.read(sha256) == data
        assert await server.read("0" * 64) is None
        await files.remove([sha256])
        await eventually(lambda: files.read_now(sha256) == data)
        await server.remove([sha256])
        async with asyncio.timeout(5):
            while await server.list_held() != {sha256}:  # noqa: ASYNC110 - another process puts it
                await asyncio.sleep(0.02)


async def test_a_place_without_room_for_weights_still_gets_snapshots(api: ControlApi) -> None:
    api.snapshot_path.parent.mkdir(parents=True, exist_ok=True)
    (api.snapshot_path.parent / "weights").write_text("in the way")
    sha256, data = make_weights(1)
    await upload(api, data)
    assert in_effect(api) == sha256
    (api.snapshot_path.parent / "weights").unlink()
    place = FileWeights(api.snapshot_path.parent)
    await eventually(lambda: place.read_now(sha256) == data)


async def test_damaged_weights_are_put_again_by_the_next_control_plane(
    database_url: str, tmp_path: Path
) -> None:
    sha256, data = make_weights(1)
    async with started(database_url, state_dir=tmp_path) as api:
        await upload(api, data)
        place = FileWeights(api.snapshot_path.parent)
        await place.put(sha256, data[:100])
    async with started(database_url, state_dir=tmp_path):
        await eventually(lambda: place.read_now(sha256) == data)

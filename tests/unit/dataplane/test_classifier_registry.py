"""Weights come into effect with the Snapshot that names them, or the last good ones go on serving."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from gateway.dataplane import classifier_registry
from gateway.dataplane.classifier_registry import ClassifierRegistry
from gateway.snapshot.codec import encode_snapshot
from gateway.snapshot.model import ClassifierWeights, Snapshot
from gateway.snapshot.weights import FileWeights
from routing.complexity.predictor import SHIPPED, decode_weights, encode_weights
from tests.unit.routing.test_complexity import make_header, make_table


def make_weights(number: int) -> tuple[str, bytes]:
    """Return the SHA-256 and the file of weights that differ by ``number``."""
    header = msgspec.structs.replace(make_header(), name=f"own-{number}")
    data = encode_weights(header, make_table({}, {}))
    return decode_weights(data).digest, data


def make_snapshot(version: int, **named: str) -> Snapshot:
    classifiers = {
        name: ClassifierWeights(name, version, sha256, 1) for name, sha256 in named.items()
    }
    return Snapshot(version=version, published_at_us=0, classifiers=classifiers)


class Rig:
    def __init__(self, directory: Path) -> None:
        self.place = FileWeights(directory)
        self.changes = 0
        self.registry = ClassifierRegistry([self.place], self._note_change)

    def _note_change(self) -> None:
        self.changes += 1

    async def take(self, snapshot: Snapshot) -> None:
        """Do what a source and the data plane do."""
        await self.registry.prepare(encode_snapshot(snapshot))
        self.registry.use(snapshot)

    def name_of(self, classifier: str) -> str | None:
        found = self.registry.find(classifier)
        return None if found is None else found.header.name


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_weights_are_there_when_the_snapshot_is_taken(rig: Rig) -> None:
    (one, first), (two, second) = make_weights(1), make_weights(2)
    await rig.place.put(one, first)
    await rig.place.put(two, second)
    await rig.take(make_snapshot(1, own=one))
    assert rig.name_of("own") == "own-1"
    await rig.take(make_snapshot(2, own=two))
    assert rig.name_of("own") == "own-2"
    await rig.take(make_snapshot(3, own=one))  # rolled back
    assert rig.name_of("own") == "own-1"
    await rig.take(make_snapshot(4))
    assert rig.name_of("own") is None
    assert rig.changes == 0


async def test_what_is_shipped_has_its_names(rig: Rig) -> None:
    shipped = rig.registry.find(None)
    assert shipped is not None
    assert rig.registry.find(SHIPPED.stem) is shipped
    assert rig.name_of("llama-8b-70b") == "llama-8b-70b"
    assert rig.registry.find("nobody's") is None
    sha256, data = make_weights(1)
    await rig.place.put(sha256, data)
    await rig.take(make_snapshot(1, **{SHIPPED.stem: sha256}))
    assert rig.name_of(SHIPPED.stem) == "own-1"  # uploaded under that name
    assert rig.registry.find(None) is shipped


def test_after_a_start_without_an_upload_the_shipped_ones_of_its_name_serve(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    snapshot = make_snapshot(1, **{SHIPPED.stem: "0" * 64, "own": "1" * 64})
    rig.registry.load_now(snapshot, rig.place.read_now)
    rig.registry.use(snapshot)
    assert rig.registry.find(SHIPPED.stem) is rig.registry.find(None)
    assert rig.registry.find("own") is None
    for name, instead in (
        (SHIPPED.stem, "the weights that are shipped under this name serve"),
        ("own", "nothing scores"),
    ):
        assert f"classifier {name}: version 1 cannot be had; {instead}" in caplog.text


@pytest.mark.parametrize("kind", ["absent", "damaged", "other"])
async def test_without_the_weights_the_last_good_ones_serve(
    kind: str, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    (one, first), (two, second) = make_weights(1), make_weights(2)
    await rig.place.put(one, first)
    await rig.take(make_snapshot(1, own=one))
    if kind == "damaged":
        await rig.place.put(two, second[:-1] + b"\0")
    elif kind == "other":
        await rig.place.put(two, first)
    await rig.take(make_snapshot(2, own=two))
    assert rig.name_of("own") == "own-1"
    assert f"version 2 cannot be had; weights {one[:12]} go on serving" in caplog.text
    told = caplog.text.count("cannot be had")
    await rig.take(make_snapshot(3, own=two))
    assert caplog.text.count("cannot be had") == told


async def test_weights_that_come_late_take_effect_then(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifier_registry, "RETRY_SECONDS", 0.01)
    sha256, data = make_weights(1)
    await rig.take(make_snapshot(1, own=sha256))
    assert rig.name_of("own") is None
    following = asyncio.create_task(rig.registry.follow())
    await rig.place.put(sha256, data)
    async with asyncio.timeout(5):
        while rig.name_of("own") is None:  # noqa: ASYNC110 - what the loop does has no event
            await asyncio.sleep(0.01)
    following.cancel()
    assert (rig.name_of("own"), rig.changes) == ("own-1", 1)


async def test_a_snapshot_waits_a_moment_for_weights_and_no_longer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifier_registry, "PREPARE_SECONDS", 0.01)
    never = asyncio.Event()

    class Hanging:
        async def read(self, _: str) -> bytes | None:
            await never.wait()
            return None

    registry = ClassifierRegistry([Hanging()], lambda: None)
    sha256, _ = make_weights(1)
    async with asyncio.timeout(5):
        await registry.prepare(encode_snapshot(make_snapshot(1, own=sha256)))
    never.set()


async def test_before_the_first_request_it_may_block(rig: Rig) -> None:
    sha256, data = make_weights(1)
    await rig.place.put(sha256, data)
    snapshot = make_snapshot(1, own=sha256, other="0" * 64)
    rig.registry.load_now(snapshot, rig.place.read_now)
    rig.registry.use(snapshot)
    assert rig.name_of("own") == "own-1"
    assert rig.registry.find("other") is None


async def test_what_is_no_snapshot_is_left_to_its_reader(rig: Rig) -> None:
    for data in (b"", b"{", b"[]", b'{"classifiers": 3}'):
        await rig.registry.prepare(data)
    assert rig.registry.find("own") is None

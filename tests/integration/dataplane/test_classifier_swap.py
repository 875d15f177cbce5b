"""Weights that a Snapshot names decide the tier from that Snapshot on, in the real process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from gateway.snapshot.model import ClassifierWeights
from gateway.snapshot.weights import FileWeights
from routing.complexity.predictor import decode_weights, encode_weights
from tests.factories.engine_replies import chat_reply, whole
from tests.factories.tier_snapshots import make_policy, make_tier_snapshot
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.scripted_engine import ScriptedEngine
from tests.unit.routing.test_complexity import make_header, make_table

HARD, EASY = (encode_weights(make_header(), make_table({"proof": sign}, {})) for sign in (-40, 40))


class Swaps:
    """A data plane whose route "auto" is scored by the classifier "own"."""

    def __init__(self, plane: DataPlaneProcess) -> None:
        self._plane = plane
        self._place = FileWeights(plane.snapshot_path.parent)

    def swap(self, sha256: str, data: bytes | None = None) -> None:
        """Publish a Snapshot that names weights; put them there if they are given."""
        if data is not None:
            asyncio.run(self._place.put(sha256, data))
        plane = self._plane
        snapshot = make_tier_snapshot(
            plane.version + 1,
            small_url=plane.engine_url,
            large_url=plane.engine_url,
            dead_url=plane.dead_url,
            policy=make_policy(classifier="own", thresholds=(0.5,)),
        )
        named = {"own": ClassifierWeights("own", snapshot.version, sha256, len(data or b""))}
        plane.publish(msgspec.structs.replace(snapshot, classifiers=named))
        plane.wait_published()

    def tier(self) -> str:
        reply = self._plane.chat(model="auto", messages=[{"role": "user", "content": "proof"}])
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-forebay-tier-reason"] == "score"
        return str(reply.headers["x-forebay-tier"])


@pytest.fixture
def swaps(plane: DataPlaneProcess, engine: ScriptedEngine) -> Iterator[Swaps]:
    engine.reply(whole(chat_reply()))
    yield Swaps(plane)
    plane.publish()
    plane.wait_published()


def test_weights_swap_with_the_snapshot_and_back(swaps: Swaps, plane: DataPlaneProcess) -> None:
    hard, easy = decode_weights(HARD).digest, decode_weights(EASY).digest
    swaps.swap(hard, HARD)
    assert swaps.tier() == "large"
    swaps.swap(easy, EASY)
    assert swaps.tier() == "small"
    swaps.swap(hard)
    assert swaps.tier() == "large"
    swaps.swap("0" * 64)  # nobody has them
    assert swaps.tier() == "large"
    assert f"cannot be had; weights {hard[:12]} go on serving" in plane.log
    swaps.swap(easy, HARD)  # not what was named
    assert swaps.tier() == "large"
    assert "other weights were read" in plane.log

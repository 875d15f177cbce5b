"""What the prober learns of a real vLLM."""

from __future__ import annotations

import asyncio

import pytest

from routing.types import ReplicaState
from tests.engine.answers import ask_engine
from tests.engine.conftest import Pair
from tests.engine.probing import probe
from tests.engine.real_vllm import CONTEXT_TOKENS, ENGINE_MODEL

pytestmark = pytest.mark.engine


async def test_state_load_and_facts_are_read(pair: Pair) -> None:
    long = {
        "prompt": "The sea is " * 200,
        "max_tokens": 120,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 0,
    }
    pair.a.wait_until_idle()
    async with probe(pair.a) as probed:
        await probed.until_state(ReplicaState.READY)
        await probed.until(lambda: bool(probed.facts))
        assert probed.facts[-1].context_tokens == CONTEXT_TOKENS
        assert probed.facts[-1].models == (ENGINE_MODEL,)
        assert probed.facts[-1].adapters == ()
        view = probed.view
        assert (view.engine_running, view.engine_waiting, view.kv_usage) == (0, 0, 0.0)
        # 1 GiB over 30 layers of 3 heads of 64 numbers of 2 bytes, keys and values.
        assert view.kv_capacity_tokens == pytest.approx(2**30 / (30 * 3 * 64 * 2 * 2), rel=0.02)
        asked = asyncio.get_running_loop().run_in_executor(None, ask_engine, pair.a, long)
        await probed.until(lambda: view.engine_running == 1)
        await probed.until(lambda: (view.kv_usage or 0) > 0)
        assert 600 / (view.kv_capacity_tokens or 1) < (view.kv_usage or 0) < 0.2
        assert (await asked).status_code == 200
        await probed.until(lambda: view.engine_running == 0 and view.kv_usage == 0)


async def test_the_data_plane_and_the_agent_agree(pair: Pair) -> None:
    async with probe(pair.b) as probed:
        await probed.until_state(ReplicaState.READY)
    report = pair.b.report()
    assert (report["state"], report["reason"]) == ("ready", None)
    assert report["wake_seconds"] > 5  # a start of vLLM, as measured

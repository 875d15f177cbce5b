"""Public bug reports about rate limits, as a client would meet them: cases 33, 35, 36 and 39.

Of these, what an engine's own ``Retry-After`` becomes (39 b to d) is in test_broken_streams.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.factories.engine_replies import answer, chat_reply, stream, usage, whole
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.scripted_engine import Hang, ScriptedEngine
from tests.integration.dataplane.test_rate_limits import (
    TOKENS,
    limit,
    publish,
    publish_stranger,
    served,
)


@pytest.fixture
def limited(plane: DataPlaneProcess) -> Iterator[DataPlaneProcess]:
    """Return a data plane whose limits the test publishes; they are gone afterwards."""
    yield plane
    plane.publish()
    served(plane)


@pytest.mark.parametrize("is_stream", [True, False])
def test_case_33_an_engine_that_hangs_does_not_keep_the_place(
    hasty_plane: DataPlaneProcess, engine: ScriptedEngine, *, is_stream: bool
) -> None:
    publish(hasty_plane, limit("in_flight", 1))
    try:
        engine.reply_once(Hang())
        assert hasty_plane.chat(stream=is_stream).status_code == 504
        engine.reply(whole(chat_reply()))
        assert hasty_plane.chat().status_code == 200  # at once
    finally:
        hasty_plane.publish()
        served(hasty_plane)


def test_case_35_both_modes_are_cut_off_at_the_same_point(
    limited: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """Five calls of 300 and 100 tokens under 1,000 in an hour, where the prompt counts as well."""
    ends: dict[bool, tuple[list[int], int]] = {}
    for is_stream in (True, False):
        engine.reset()
        engine.reply(
            stream(*answer(["w"] * 100, prompt=300))
            if is_stream
            else whole(chat_reply(counts=usage(300, 100)))
        )
        rule = limit("total_tokens", 1000, 3600, scope_id=f"key_mode_{is_stream}")
        secret = publish_stranger(limited, rule)
        chat = partial(limited.chat, secret=secret, stream=is_stream, max_tokens=100)
        replies = [chat() for _ in range(5)]
        codes = [reply.status_code for reply in replies]
        struck = [r.json()["error"]["limit"]["id"] == rule.id for r in replies if not r.is_success]
        assert all(struck)
        ends[is_stream] = codes, len(engine.requests)
    codes, reached = ends[True]
    # A guess for the third fits in the 200 that are left; what it takes is debited, so no fourth.
    assert codes == [200, 200, 200, 429, 429]
    assert reached == 3  # a refused one reaches no engine
    assert ends[False] == ends[True]


@pytest.mark.parametrize("is_stream", [True, False])
def test_case_35_a_prompt_above_the_limit_is_told_that_it_never_fits(
    limited: DataPlaneProcess, engine: ScriptedEngine, *, is_stream: bool
) -> None:
    publish(limited, limit("total_tokens", 1000, 60))
    words = [{"role": "user", "content": "word " * 5000}]
    refused = limited.chat(messages=words, max_tokens=1, stream=is_stream)
    assert (refused.status_code, engine.requests) == (429, [])
    assert refused.json()["error"]["code"] == "request_over_rate_limit"
    assert refused.headers["x-should-retry"] == "false"
    assert not {"retry-after", "retry-after-ms"} & set(refused.headers)


def test_case_36_reservations_become_what_was_used(
    limited: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """Streams of up to 8,000 tokens that use 50; then without a bound; then four choices."""
    day = limit("total_tokens", 100_000, 86_400, scope_id="key_modest")
    secret = publish_stranger(limited, day)
    engine.reply(stream(*answer(["w"] * 30, prompt=20)))
    chat = partial(limited.chat, secret=secret, stream=True)
    codes = [chat(max_tokens=8000).status_code for _ in range(30)]
    codes += [chat().status_code, chat(n=4).status_code]
    assert codes == [200] * 32
    left = int(limited.get("/v1/models/small", secret).headers[TOKENS])
    # Nothing of what was reserved is kept; the limit refills by about one token a second.
    assert 100_000 - 32 * 50 <= left < 100_000


def test_case_39_our_own_refusal_tells_whole_seconds_rounded_up(
    limited: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(whole(chat_reply()))
    for amount, per_seconds in ((2, 1), (1, 60), (7, 3600)):
        publish(limited, limit("requests", amount, per_seconds))
        reply = limited.chat()
        while reply.status_code == 200:
            assert int(reply.headers["x-ratelimit-remaining-requests"]) >= 0
            reply = limited.chat()
        wait_ms = int(reply.headers["retry-after-ms"])
        assert 1 <= wait_ms <= 1000 * per_seconds / amount + 1
        assert reply.headers["retry-after"] == str(max(1, -(-wait_ms // 1000)))
        assert reply.headers["x-ratelimit-remaining-requests"] == "0"
        error = reply.json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")

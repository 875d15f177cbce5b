"""What an Idempotency-Key promises, on both stores: in one process, and over Redis.

``workers.first`` and ``workers.other`` are two workers with Redis, and the same one without.
"""

from __future__ import annotations

import asyncio

import httpx
import pytest

from gateway.dataplane.http.exchange import ClientLeftError, HttpExchange
from gateway.errors import UnavailableError
from tests.integration.idempotency.conftest import MakeWorkers, Workers, wait_for
from tests.integration.idempotency.replies import BROKEN, DONE, GatedStream, refused, whole

KIB = 1024
REPLAY = "x-forebay-idempotent-replay"


def check_replay(reply: httpx.Response, original: httpx.Response) -> None:
    """Check that a reply is another's replay, to the byte and the header."""
    assert (reply.status_code, reply.content) == (original.status_code, original.content)
    assert reply.headers[REPLAY] == "true"
    changing = {REPLAY, "date", "content-length", "transfer-encoding"}
    kept = {name: value for name, value in reply.headers.items() if name not in changing}
    assert kept == {n: v for n, v in original.headers.items() if n not in changing}
    assert kept["x-request-id"] == "req_original"


async def test_twenty_at_once_are_one_run(workers: Workers) -> None:
    workers.run(whole(b'{"answer":"\xc3\xa9"}'))
    replies = await asyncio.gather(
        *[workers.post((workers.first, workers.other)[number % 2]) for number in range(20)]
    )
    assert workers.runs == 1
    [original] = [reply for reply in replies if REPLAY not in reply.headers]
    for reply in replies:
        if reply is not original:
            check_replay(reply, original)


async def test_a_stream_is_joined_from_its_beginning(workers: Workers) -> None:
    stream = GatedStream()
    workers.run(stream.run)
    async with workers.stream(workers.first) as owner:
        await wait_for(lambda: stream.sent == 5, "half of the stream")
        async with workers.stream(workers.other) as late:
            parts = late.aiter_raw()
            early = await anext(parts)  # before the rest exists
            assert stream.body.startswith(early)
            stream.gate.set()
            rest = b"".join([part async for part in parts])
            assert early + rest == stream.body
            assert late.headers[REPLAY] == "true"
        assert b"".join([part async for part in owner.aiter_raw()]) == stream.body
        assert REPLAY not in owner.headers
    assert workers.runs == 1


@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_ended_reply_is_replayed(workers: Workers, is_stream: bool) -> None:
    stream = GatedStream(1000, size=300)
    stream.gate.set()
    workers.run(stream.run if is_stream else whole(lines=b"x-forebay-charge: 0.5\r\n"))
    original = await workers.post(workers.first)
    for _ in range(3):
        check_replay(await workers.post(workers.other), original)
        check_replay(await workers.post(workers.first), original)
    assert workers.runs == 1


async def test_another_request_is_refused(workers: Workers) -> None:
    workers.run(whole())
    await workers.post(workers.first, body=b'{"a":1}')
    for reply in (
        await workers.post(workers.other, body=b'{"a":2}'),
        await workers.post(workers.other, body=b'{"a":1}', path="/v1/completions"),
    ):
        assert (reply.status_code, reply.json()["error"]["code"]) == (409, "idempotency_key_reused")
        assert reply.headers["x-should-retry"] == "false"
    elsewhere = await workers.post(workers.other, body=b'{"a":2}', headers={"x-project": "proj_2"})
    assert elsewhere.status_code == 200
    assert workers.runs == 2


@pytest.mark.parametrize("key", ["", "k" * 256, "caf\u00e9", "a\tb"])
async def test_bad_keys_are_refused(workers: Workers, key: str) -> None:
    workers.run(whole())
    reply = await workers.client.post(
        f"http://127.0.0.1:{workers.first.port}/", headers=[(b"idempotency-key", key.encode())]
    )
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "invalid_idempotency_key"
    assert (await workers.post(workers.first, key="k" * 255)).status_code == 200


async def test_a_client_that_left_finds_its_reply(workers: Workers) -> None:
    stream = GatedStream()
    workers.run(stream.run)
    async with workers.stream(workers.first) as owner:
        await anext(owner.aiter_raw())
    assert workers.first.server is not None
    await wait_for(
        lambda: all(not c.current for c in workers.first.server.connections),  # type: ignore[union-attr]
        "the client is gone",
    )
    async with workers.stream(workers.other) as retry:
        stream.gate.set()
        assert b"".join([part async for part in retry.aiter_raw()]) == stream.body
    assert workers.runs == 1
    assert not workers.first.is_left


@pytest.mark.parametrize("how", ["answered", "raised"])
async def test_a_failure_is_shared_and_frees_the_key(workers: Workers, how: str) -> None:
    error = UnavailableError("Not now.", retry_after_seconds=2.0)
    workers.run(whole(error.body(), 503) if how == "answered" else refused(error))
    replies = await asyncio.gather(
        workers.post(workers.first), workers.post(workers.first), workers.post(workers.other)
    )
    assert {reply.status_code for reply in replies} == {503}
    assert len({reply.content for reply in replies}) == 1
    assert len({reply.headers["x-request-id"] for reply in replies}) == workers.runs == 1
    workers.run(whole())
    again = await workers.post(workers.other)
    assert (again.status_code, workers.runs) == (200, 2)
    assert REPLAY not in again.headers


async def test_a_broken_stream_is_shared_and_frees_the_key(workers: Workers) -> None:
    stream = GatedStream(end=BROKEN)
    workers.run(stream.run)
    async with workers.stream(workers.first) as owner:
        await wait_for(lambda: stream.sent == 5, "half of the stream")
        async with workers.stream(workers.other) as late:
            await anext(late.aiter_raw())
            stream.gate.set()
            assert (await owner.aread()) == stream.body
            workers.run(whole())
            again = await workers.post(workers.other)  # at once
            assert again.status_code == 200
            assert REPLAY not in again.headers
    assert workers.runs == 2


async def test_a_fault_is_shared_and_frees_the_key(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(exchange: HttpExchange) -> None:
        await asyncio.sleep(0.02)
        raise ZeroDivisionError(exchange.path)

    workers.run(fail)
    replies = await asyncio.gather(workers.post(workers.first), workers.post(workers.other))
    assert [reply.json()["error"]["code"] for reply in replies] == ["internal_error"] * 2
    assert "ZeroDivisionError" in caplog.text
    workers.run(whole())
    assert (await workers.post(workers.other)).status_code == 200


async def test_a_reply_is_forgotten_after_its_time(make_workers: MakeWorkers) -> None:
    async with make_workers(retention_seconds=0.4) as workers:
        workers.run(whole())
        await workers.post(workers.first)
        check = await workers.post(workers.other)
        assert check.headers[REPLAY] == "true"
        await asyncio.sleep(0.5)  # its time is the only thing that can end it
        assert REPLAY not in (await workers.post(workers.other)).headers
        assert workers.runs == 2


async def test_a_reply_over_the_bound_is_its_owners_alone(make_workers: MakeWorkers) -> None:
    async with make_workers(max_reply_bytes=64 * KIB) as workers:
        stream = GatedStream(1000, size=1000)
        workers.run(stream.run)
        async with workers.stream(workers.first) as owner:
            parts = owner.aiter_raw()
            start = await anext(parts)
            late = await workers.post(workers.other)
            assert late.status_code == 409
            assert late.json()["error"]["code"] == "idempotent_reply_not_kept"
            stream.gate.set()
            assert start + b"".join([part async for part in parts]) == stream.body
        workers.run(whole())
        assert (await workers.post(workers.other)).status_code == 200
        assert workers.runs == 2


async def test_a_follower_is_told_when_the_bound_is_passed(make_workers: MakeWorkers) -> None:
    async with make_workers(max_reply_bytes=64 * KIB) as workers:
        stream = GatedStream(100, size=1000)
        stream.frames[:50] = [b"data: {}\n\n"] * 50
        workers.run(stream.run)
        async with workers.stream(workers.first) as owner:
            await wait_for(lambda: stream.sent == 50, "half of the stream")
            async with workers.stream(workers.other) as late:
                parts = late.aiter_raw()
                await anext(parts)
                stream.frames[50:] = stream.frames[50:] * 2
                stream.gate.set()
                told = b"".join([part async for part in parts])
            assert b'"code":"idempotent_reply_not_kept"' in told
            assert DONE not in told
            assert (await owner.aread()).endswith(DONE)


async def test_what_is_not_kept_ends_with_its_client(make_workers: MakeWorkers) -> None:
    async with make_workers(max_reply_bytes=64 * KIB) as workers:
        stream = GatedStream(20_000, size=1000)
        stream.gate.set()
        workers.run(stream.run)
        async with workers.stream(workers.first) as owner:
            await anext(owner.aiter_raw())
            sent = -1
            while sent != stream.sent:  # until the sockets between are full
                sent = stream.sent
                await asyncio.sleep(0.3)
            assert sent < len(stream.frames)  # nobody reads: the run waits
        await wait_for(lambda: workers.first.is_left, "the run is told")
        await wait_for(lambda: isinstance(stream.error, ClientLeftError), "the run ends")
        assert stream.sent < len(stream.frames)


async def test_a_slow_client_holds_up_nobody_else(workers: Workers) -> None:
    stream = GatedStream(4000, size=1000)
    stream.gate.set()
    workers.run(stream.run)
    async with workers.stream(workers.first) as owner:  # reads nothing yet
        late = await workers.post(workers.other)
        assert late.content == stream.body
        assert stream.sent == 4000
        unsent = [c._transport.get_write_buffer_size() for c in workers.first.server.connections]  # type: ignore[union-attr]
        assert max(unsent) < 1024 * KIB  # the rest waits in the recording, not in the socket's
        assert await owner.aread() == stream.body


async def test_standings_of_then_are_not_replayed(workers: Workers) -> None:
    lines = b"x-ratelimit-remaining-requests: 7\r\nx-forebay-route: small\r\n"
    workers.run(whole(lines=lines))
    original = await workers.post(workers.first)
    assert original.headers["x-ratelimit-remaining-requests"] == "7"
    replay = await workers.post(workers.other)
    assert "x-ratelimit-remaining-requests" not in replay.headers
    assert replay.headers["x-forebay-route"] == "small"

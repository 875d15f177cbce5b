"""Whole answers: relayed, metered, renamed; engines' failures put into our contract."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import msgspec
import pytest

from billing.usage.event import RequestStatus, TokenUsage
from tests.factories.engine_replies import chat_reply, encode, error_reply, usage, whole
from tests.factories.snapshots import ENGINE_MODEL, make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.scripted_engine import Fin, Hang, Reset, ScriptedEngine


def test_an_answer_keeps_its_bytes_and_is_priced(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    body = (
        b'{ "id" : "1", "x": [1e-7, 9007199254740993], "usage": '
        + encode(usage(1000, 500))
        + b"}\n"
    )
    engine.reply(whole(body))
    reply = plane.chat()
    assert reply.content == body
    assert reply.headers["content-length"] == str(len(body))
    assert reply.headers["x-forebay-charge"] == "0.0075"
    assert reply.headers["x-forebay-currency"] == "EUR"
    assert reply.headers["x-forebay-deployment"] == "small-cpu"
    close = plane.close_of(reply)
    assert (close.status, close.usage) == (
        RequestStatus.COMPLETED,
        TokenUsage(1000, None, 500, None),
    )
    assert (close.attempts, close.replica_id, close.error_code) == (1, "rep_live", None)


def test_the_close_record_is_written_before_the_answer_ends(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(whole(chat_reply()))
    for _ in range(20):
        request_id = plane.chat().headers["x-request-id"]
        assert request_id in {close.identity.request_id for close in plane.closes}


@pytest.mark.parametrize(
    ("counts", "recorded"),
    [
        (
            usage(
                2008,
                266,
                prompt_tokens_details={"cached_tokens": 2000},
                completion_tokens_details={"reasoning_tokens": 261},
            ),
            TokenUsage(2008, 2000, 266, 261),
        ),
        (usage(5, 0), TokenUsage(5, None, 0, None)),
        (None, TokenUsage()),
        ({}, TokenUsage()),
        ({"prompt_tokens": 5}, TokenUsage(5, None, None, None)),
        (
            {"prompt_tokens": 3_000_000_000, "completion_tokens": 1},
            TokenUsage(3_000_000_000, None, 1),
        ),
        ({"prompt_tokens": 1.5, "completion_tokens": 1}, TokenUsage()),
        ({"prompt_tokens": "5", "completion_tokens": 1}, TokenUsage()),
        (usage(5, 1, prompt_tokens_details=None), TokenUsage(5, None, 1, None)),
    ],
    ids=str,
)
def test_cases_29_31_counts_are_taken_as_told_or_not_at_all(
    plane: DataPlaneProcess, engine: ScriptedEngine, counts: Any, recorded: TokenUsage
) -> None:
    engine.reply(whole(chat_reply(counts=counts)))
    reply = plane.chat()
    assert reply.status_code == 200
    close = plane.close_of(reply)
    assert (close.status, close.usage) == (RequestStatus.COMPLETED, recorded)
    has_charge = recorded.input_tokens is not None and recorded.output_tokens is not None
    assert ("x-forebay-charge" in reply.headers) is has_charge


def test_case_31_negative_counts_are_recorded_for_the_rating_to_refuse(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(whole(chat_reply(counts={"prompt_tokens": -5, "completion_tokens": 1})))
    reply = plane.chat()
    assert reply.status_code == 200
    assert "x-forebay-charge" not in reply.headers  # never a credit
    assert plane.close_of(reply).usage == TokenUsage(-5, None, 1, None)


def test_the_client_sees_the_name_it_asked_for(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    content = f'say "model":"{ENGINE_MODEL}"'
    engine.reply(whole(chat_reply(content, model=ENGINE_MODEL)))
    answer = plane.chat(model="alias").json()
    assert answer["model"] == "alias"
    assert answer["choices"][0]["message"]["content"] == content
    spaced = json.dumps(chat_reply(content, model=ENGINE_MODEL)).encode()
    engine.reply(whole(spaced))
    assert plane.chat(model="alias").json()["model"] == "alias"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "GZIP", "identity"])
def test_case_66_a_packed_answer_is_unpacked(
    plane: DataPlaneProcess, engine: ScriptedEngine, encoding: str
) -> None:
    data = encode(chat_reply())
    pack = {"gzip": gzip.compress, "deflate": zlib.compress}.get(encoding.lower(), bytes)
    engine.reply(whole(pack(data), 200, f"content-encoding: {encoding}\r\n"))
    reply = plane.chat()
    assert (reply.status_code, reply.content) == (200, data)
    assert "content-encoding" not in reply.headers
    assert plane.close_of(reply).usage == TokenUsage(10, None, 3, None)


def test_case_66_a_packed_error_is_unpacked(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    data = gzip.compress(encode({"error": {"message": "temperature is too hot", "code": 400}}))
    engine.reply(whole(data, 400, "content-encoding: gzip\r\n"))
    reply = plane.chat()
    assert (reply.status_code, reply.json()["error"]["message"]) == (400, "temperature is too hot")


BROKEN = {
    "an unknown encoding": (
        whole(b"{}", 200, "content-encoding: br\r\n"),
        "engine_reply_malformed",
    ),
    "no gzip": (whole(b"{}", 200, "content-encoding: gzip\r\n"), "engine_reply_malformed"),
    "half a gzip": (
        whole(gzip.compress(encode(chat_reply()))[:-10], 200, "content-encoding: gzip\r\n"),
        "engine_reply_malformed",
    ),
    "html": (whole(b"<html>x</html>", content_type="text/html"), "engine_reply_malformed"),
    "a list": (whole(b"[1]"), "engine_reply_malformed"),
    "nothing": (whole(b""), "engine_reply_malformed"),
    "half a JSON": (whole(encode(chat_reply())[:-2]), "engine_reply_malformed"),
    "204": (b"HTTP/1.1 204 X\r\n\r\n", "engine_failed"),
    "a redirect": (whole(b"", 307, "location: http://evil/\r\n"), "engine_failed"),
    "an upgrade": (
        b"HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        "engine_reply_malformed",
    ),
    "over the limit": (whole(b'{"x":"' + b"A" * 9_000_000 + b'"}'), "reply_too_large"),
    "a bomb": (
        whole(gzip.compress(b" " * 20_000_000), 200, "content-encoding: gzip\r\n"),
        "reply_too_large",
    ),
}


@pytest.mark.parametrize(("sent", "code"), BROKEN.values(), ids=BROKEN.keys())
def test_an_answer_that_cannot_be_relayed_is_a_502(
    plane: DataPlaneProcess, engine: ScriptedEngine, sent: bytes, code: str
) -> None:
    engine.reply(sent)
    reply = plane.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, code)
    close = plane.close_of(reply)
    assert (close.status, close.http_status) == (RequestStatus.FAILED, 502)
    assert (close.usage, close.error_code) == (TokenUsage(), code)
    assert len(engine.requests) == 1


@pytest.mark.parametrize("end", [Fin(), Reset()])
@pytest.mark.parametrize("sent", [0, 30, -5])
def test_a_cut_answer_is_a_502(
    plane: DataPlaneProcess, engine: ScriptedEngine, end: Fin | Reset, sent: int
) -> None:
    engine.reply(whole(chat_reply())[:sent], end)
    reply = plane.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "engine_cut")
    assert plane.close_of(reply).status is RequestStatus.FAILED
    assert len(engine.requests) == 1  # sent on a new connection: not again


@pytest.mark.parametrize(
    "more",
    [
        *({"error": value} for value in (None, False, {}, "", 0, [], True)),
        {"x_error": {"error": 1}},
    ],
    ids=str,
)
def test_an_answer_that_speaks_of_errors_is_an_answer(
    plane: DataPlaneProcess, engine: ScriptedEngine, more: dict[str, Any]
) -> None:
    sent = {**chat_reply('{"error": {}}'), **more}
    engine.reply(whole(sent))
    reply = plane.chat()
    assert (reply.status_code, reply.json()) == (200, sent)
    assert plane.close_of(reply).usage == TokenUsage(10, None, 3, None)


def test_an_answer_that_the_connections_end_delimits(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    data = encode(chat_reply())
    engine.reply(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + data, Fin())
    reply = plane.chat()
    assert (reply.status_code, reply.content) == (200, data)


def test_an_interim_reply_is_passed_over(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    engine.reply(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n",
        whole(chat_reply()),
    )
    assert plane.chat().status_code == 200


@pytest.mark.parametrize("endless", [b"x: y\r\n", b"x: " + b"y" * 1000])
def test_a_head_without_an_end_is_not_gathered_for_ever(
    plane: DataPlaneProcess, engine: ScriptedEngine, endless: bytes
) -> None:
    many = endless * (600_000 // len(endless))
    engine.reply(b"HTTP/1.1 200 OK\r\n" + many, Hang())
    reply = plane.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "engine_reply_malformed")


ENGINE_ERRORS: list[tuple[bytes, int, str]] = [
    (
        error_reply("max_tokens is too large", 400, param="max_tokens"),
        400,
        "max_tokens is too large",
    ),
    (error_reply("not here", 404, param="adapter"), 404, "not here"),
    (error_reply("The model `x` does not exist.", 404, param="model"), 502, "The engine failed"),
    (error_reply("Not Found", 404), 502, "The engine failed"),
    (error_reply("too big", 413), 413, "too big"),
    (whole({"detail": [{"msg": "field required"}]}, 422), 400, "field required"),
    (whole({"detail": "plain words"}, 422), 400, "plain words"),
    (whole({"error": "plain words"}, 400), 400, "plain words"),
    (whole({"object": "error", "message": "old shape"}, 400), 400, "old shape"),
    (whole({"error": {"message": None}}, 400), 400, "The engine refused the request."),
    (whole({"error": {"message": 5, "param": 7}}, 400), 400, "The engine refused the request."),
    (whole(b"<html>", 400), 400, "The engine refused the request."),
    (
        error_reply(f"model {ENGINE_MODEL} at http://10.0.0.1:8000/x", 400),
        400,
        "model alias at [address]",
    ),
    (error_reply("slow down", 429), 429, "slow down"),
    (error_reply("wrong key", 401), 502, "The engine failed"),
    (error_reply("forbidden", 403), 502, "The engine failed"),
    (error_reply("CUDA out of memory at /srv/x.py", 500), 502, "The engine failed"),
    (error_reply("bad gateway", 502), 502, "The engine failed"),
    (error_reply("busy at /srv/x.py", 503), 503, "The engine takes no requests at the moment."),
    (
        error_reply("It is starting.", 503, type="ServiceUnavailableError"),
        503,
        "The engine takes no requests at the moment: It is starting.",
    ),
    (error_reply("slow", 504), 504, "The engine ran out of time."),
    (error_reply("x", 599), 502, "The engine failed"),
    (error_reply("no credit at http://10.0.0.1/x", 200, code=402), 502, "no credit at [address]"),
    (error_reply("max_tokens is too large", 200, code=400), 400, "max_tokens is too large"),
    (whole({"error": "plain words"}), 502, "plain words"),
    (whole({"object": "error", "message": "old shape"}), 502, "old shape"),
    (whole({"object": "error", "message": "old shape", "code": 400}), 400, "old shape"),
    (whole({"object": "error", "message": "old shape", "error": False}), 502, "old shape"),
    (whole({"object": "error", "message": "old shape", "error": False}, 400), 400, "old shape"),
    (whole({"error": {"message": "odd code", "code": 5.5}}, 400), 400, "odd code"),
    (whole(b'{"error": { }, "detail": "plain words"}', 400), 400, "plain words"),
    (
        whole({"object": "error", "message": "Soon.", "type": "ServiceUnavailableError"}, 503),
        503,
        "The engine takes no requests at the moment: Soon.",
    ),
]


def test_an_engines_words_are_shortened(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    long = "x" * 9000
    engine.reply(error_reply(long, 400, param=long, code=long))
    error = plane.chat().json()["error"]
    assert error["message"] == long[:2000] + "…"
    assert error["param"] == error["code"] == long[:200] + "…"


@pytest.mark.parametrize(
    ("sent", "status", "message"), ENGINE_ERRORS, ids=lambda value: str(value)[:40]
)
def test_engine_errors_in_our_contract(
    plane: DataPlaneProcess, engine: ScriptedEngine, sent: bytes, status: int, message: str
) -> None:
    engine.reply(sent)
    reply = plane.chat(model="alias")
    error = reply.json()["error"]
    assert (reply.status_code, set(error)) == (status, {"message", "type", "param", "code"})
    assert message in error["message"]
    assert reply.headers["x-forebay-replica"] == "rep_live"
    assert ("retry-after" in reply.headers) is (status in (429, 503))
    assert ("retry-after-ms" in reply.headers) is (status in (429, 503))
    close = plane.close_of(reply)
    assert close.status is (RequestStatus.REJECTED if status < 500 else RequestStatus.FAILED)
    assert (close.http_status, close.usage) == (status, TokenUsage())


@pytest.mark.parametrize(
    ("sent", "told"),
    [("17", "17"), ("0", "2"), ("soon", "2"), ("9" * 400, "86400"), ("-3", "2"), ("", "2")],
)
def test_retry_after_is_passed_on(
    plane: DataPlaneProcess, engine: ScriptedEngine, sent: str, told: str
) -> None:
    engine.reply(error_reply("busy", 503, f"retry-after: {sent}\r\n"))
    reply = plane.chat()
    assert (reply.status_code, reply.headers["retry-after"]) == (503, told)
    assert reply.headers["retry-after-ms"] == told + "000"


def test_a_stream_request_answered_whole_is_an_answer(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(whole(chat_reply()))
    reply = plane.chat(stream=True)
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == chat_reply()
    close = plane.close_of(reply)
    assert (close.status, close.usage) == (RequestStatus.COMPLETED, TokenUsage(10, None, 3, None))


def test_a_deployment_says_how_long_a_whole_answer_may_take(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    base = make_snapshot(plane.version + 1, plane.engine_url, dead_url=plane.dead_url)
    hasty = msgspec.structs.replace(base.deployments["dep_small"], reply_timeout_seconds=0.3)
    plane.publish(
        msgspec.structs.replace(base, deployments={**base.deployments, "dep_small": hasty})
    )
    plane.wait_published()
    try:
        engine.reply(b'HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"id"', Hang())
        reply = plane.chat()  # the data plane itself would wait a quarter of an hour
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "engine_timeout")
        engine.requests[0].wait_left()
    finally:
        plane.publish()
        plane.wait_published()

"""The error contract: what is refused before admission reaches no engine and leaves no record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.factories.engine_replies import chat_reply, encode, whole
from tests.factories.snapshots import (
    BLOCKED_SECRET,
    EXPIRED_SECRET,
    LIMITED_SECRET,
    REVOKED_SECRET,
    SECRET,
)
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.raw_http import exchange, request_bytes
from tests.fixtures.scripted_engine import ScriptedEngine

GOOD: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def refusing(plane: DataPlaneProcess, engine: ScriptedEngine) -> Iterator[DataPlaneProcess]:
    """A data plane that must neither ask the engine nor admit anything in this test."""
    engine.reply(whole(chat_reply()))
    opened = plane.opened
    yield plane
    assert engine.requests == []
    assert plane.opened == opened


def check_error(reply: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"].startswith("req_")
    body = reply.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == kind
    assert error["message"].endswith((".", "?"))
    assert error["code"]
    return error


DEEP = b'{"model":"small","messages":[],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
MALFORMED = {
    "empty": b"",
    "cut": b'{"model": "small", "messages": [',
    "not json": b"model=small",
    "two values": encode(GOOD) + b"{}",
    "NaN": b'{"model":"small","messages":[],"temperature":NaN}',
    "not utf-8": b'{"model":"sm\xffall","messages":[]}',
    "not utf-8 where nobody looks": (
        b'{"model":"small","messages":[{"role":"user","content":"\xff\xfe"}]}'
    ),
    "lone surrogate as model": b'{"model":"\\ud800","messages":[]}',
    "utf-16": encode(GOOD).decode().encode("utf-16"),
    "two byte order marks": b"\xef\xbb\xbf" * 2 + encode(GOOD),
    "single quotes": b"{'model':'small'}",
    "5 MB of garbage": b"x" * 5_000_000,
    "deeper than a stack": DEEP,
    "a deep stream": DEEP[:-1] + b',"stream":true}',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_json(refusing: DataPlaneProcess, body: bytes) -> None:
    error = check_error(refusing.post(body), 400, "invalid_request_error")
    assert error["code"] == "malformed_json"
    assert len(error["message"]) < 500


@pytest.mark.parametrize("body", [b"", b" \r\n\t"])
def test_a_body_of_nothing_is_called_empty(refusing: DataPlaneProcess, body: bytes) -> None:
    error = check_error(refusing.post(body), 400, "invalid_request_error")
    assert error["message"] == "The body is empty; it must be a JSON object."


WRONG_TYPES: list[tuple[Any, str | None]] = [
    ([], None),
    ("text", None),
    (None, None),
    ({}, "model"),
    ({"messages": []}, "model"),
    ({"model": "small"}, "messages"),
    ({**GOOD, "model": None}, "model"),
    ({**GOOD, "model": 3}, "model"),
    ({**GOOD, "messages": "Hi"}, "messages"),
    ({**GOOD, "messages": None}, "messages"),
    ({**GOOD, "messages": ["Hi"]}, "messages"),
    ({**GOOD, "messages": [{"content": "Hi"}]}, "messages"),
    ({**GOOD, "stream": "true"}, "stream"),
    ({**GOOD, "stream": 1}, "stream"),
    ({**GOOD, "stream_options": []}, "stream_options"),
    ({**GOOD, "stream_options": {"include_usage": "yes"}}, "stream_options"),
    ({**GOOD, "max_tokens": "100"}, "max_tokens"),
    ({**GOOD, "max_tokens": 1.5}, "max_tokens"),
    ({**GOOD, "n": "2"}, "n"),
    ({**GOOD, "temperature": "hot"}, "temperature"),
    ({**GOOD, "stop": 3}, "stop"),
    ({**GOOD, "tools": {}}, "tools"),
    ({**GOOD, "user": 3}, "user"),
]


@pytest.mark.parametrize(("body", "param"), WRONG_TYPES, ids=lambda value: str(value)[:60])
def test_wrong_types_name_the_member(
    refusing: DataPlaneProcess, body: Any, param: str | None
) -> None:
    error = check_error(refusing.post(encode(body)), 400, "invalid_request_error")
    assert error["param"] == param


def test_wrong_types_in_a_completion(refusing: DataPlaneProcess) -> None:
    body = encode({"model": "small", "prompt": {"a": 1}})
    error = check_error(refusing.post(body, path="/v1/completions"), 400, "invalid_request_error")
    assert error["param"] == "prompt"


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "json",
        "application/json; charset=utf-16",
        'application/json; charset="ISO-8859-1"',
    ],
)
def test_wrong_content_type(refusing: DataPlaneProcess, content_type: str) -> None:
    reply = refusing.post(encode(GOOD), content_type=content_type)
    error = check_error(reply, 400, "invalid_request_error")
    assert error["code"] == "unsupported_content_type"


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        'application/json;profile=x; Charset="UTF-8"',
        "Application/JSON",
        "application/x+json",
    ],
)
def test_json_content_types_are_taken(
    plane: DataPlaneProcess, engine: ScriptedEngine, content_type: str
) -> None:
    engine.reply(whole(chat_reply()))
    assert plane.post(encode(GOOD), content_type=content_type).status_code == 200


def test_no_content_type_is_taken(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    engine.reply(whole(chat_reply()))
    data = request_bytes(encode(GOOD)).replace(b"content-type: application/json\r\n", b"")
    assert exchange(plane.port, data).status == 200


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress"])
def test_unknown_content_encoding(refusing: DataPlaneProcess, encoding: str) -> None:
    reply = refusing.post(encode(GOOD), content_encoding=encoding)
    error = check_error(reply, 400, "invalid_request_error")
    assert error["code"] == "unsupported_content_encoding"


@pytest.mark.parametrize(
    ("secret", "code"),
    [
        (None, "missing_api_key"),
        ("fb-unknown", "invalid_api_key"),
        (SECRET.upper(), "invalid_api_key"),
        (SECRET[3:], "invalid_api_key"),
        (REVOKED_SECRET, "api_key_revoked"),
        (EXPIRED_SECRET, "api_key_expired"),
    ],
)
def test_401_says_why_and_names_the_scheme(
    refusing: DataPlaneProcess, secret: str | None, code: str
) -> None:
    headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
    for reply in (
        refusing.client.post(refusing.url + "/v1/chat/completions", json=GOOD, headers=headers),
        refusing.client.post(refusing.url + "/v1/completions", json=GOOD, headers=headers),
        refusing.client.get(refusing.url + "/v1/models", headers=headers),
        refusing.client.get(refusing.url + "/v1/models/small", headers=headers),
        refusing.client.get(refusing.url + "/v1/usage/req_1", headers=headers),
    ):
        error = check_error(reply, 401, "authentication_error")
        assert error["code"] == code
        assert reply.headers["www-authenticate"] == 'Bearer realm="forebay"'


def test_403_for_a_blocked_key(refusing: DataPlaneProcess) -> None:
    for reply in (refusing.chat(secret=BLOCKED_SECRET), refusing.get("/v1/models", BLOCKED_SECRET)):
        assert check_error(reply, 403, "permission_error")["code"] == "api_key_blocked"


def test_403_for_a_route_of_others(refusing: DataPlaneProcess) -> None:
    for reply in (
        refusing.chat(secret=LIMITED_SECRET, model="alias"),
        refusing.get("/v1/models/alias", LIMITED_SECRET),
    ):
        error = check_error(reply, 403, "permission_error")
        assert (error["code"], error["param"]) == ("model_not_allowed", "model")


@pytest.mark.parametrize("model", ["nope", "", "SMALL", "small ", "org/engine-model", "ü" * 5000])
def test_404_for_an_unknown_model(refusing: DataPlaneProcess, model: str) -> None:
    error = check_error(refusing.chat(model=model), 404, "invalid_request_error")
    assert (error["code"], error["param"]) == ("model_not_found", "model")


LONG = "x" * 9000
CUT = LONG[:200] + "…"


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        (
            "POST",
            "chat/completions",
            {**GOOD, "model": LONG},
            f"The model '{CUT}' does not exist.",
        ),
        ("GET", f"models/{LONG}", None, f"The model '{CUT}' does not exist."),
        ("GET", f"images/{LONG}", None, f"There is nothing at {f'/v1/images/{LONG}'[:200]}…."),
        (
            "PUT",
            f"models/{LONG}",
            None,
            f"PUT is not allowed on {f'/v1/models/{LONG}'[:200]}….",
        ),
        (
            "POST",
            "embeddings",
            {"model": "small", "input": "x", "encoding_format": f"a'{LONG}"},
            f'Invalid enum value "a\'{LONG[:198]}…" - at `$.encoding_format`.',
        ),
    ],
    ids=["model", "model in a path", "path", "method", "value"],
)
def test_no_more_than_the_beginning_of_what_was_given_is_repeated(
    refusing: DataPlaneProcess, method: str, path: str, body: Any, message: str
) -> None:
    headers = {"authorization": f"Bearer {SECRET}"}
    url = f"{refusing.url}/v1/{path}"
    reply = refusing.client.request(method, url, headers=headers, json=body)
    assert reply.json()["error"]["message"] == message


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/", "/v1/images", "/v2/models", "/favicon.ico", "/v1/usage", "/%ff"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_404_for_an_unknown_path(refusing: DataPlaneProcess, method: str, path: str) -> None:
    reply = refusing.client.request(method, refusing.url + path, content=b"{}")
    check_error(reply, 404, "invalid_request_error")


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions/", "//v1/chat/completions", "/v1//completions"]
)
def test_sloppy_generation_paths_are_told_not_redirected(
    refusing: DataPlaneProcess, path: str
) -> None:
    data = request_bytes(encode(GOOD), path=path)
    reply = exchange(refusing.port, data)
    assert reply.status == 404
    assert "slashes" in reply.error["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/chat/completions"),
        ("GET", "/v1/completions"),
        ("DELETE", "/v1/models"),
        ("POST", "/v1/models/small"),
        ("PUT", "/v1/usage/req_1"),
        ("POST", "/health"),
        ("OPTIONS", "/v1/chat/completions"),
    ],
)
def test_405(refusing: DataPlaneProcess, method: str, path: str) -> None:
    reply = refusing.client.request(
        method, refusing.url + path, headers={"authorization": f"Bearer {SECRET}"}
    )
    check_error(reply, 405, "invalid_request_error")
    assert reply.headers["allow"]


def test_503_without_a_replica(plane: DataPlaneProcess) -> None:
    reply = plane.chat(model="none")
    error = check_error(reply, 503, "api_error")
    assert error["code"] == "no_replica"
    assert (reply.headers["retry-after"], reply.headers["retry-after-ms"]) == ("2", "2000")
    close = plane.close_of(reply)
    assert (close.status.value, close.http_status, close.attempts) == ("failed", 503, 0)


def test_receipts_without_a_control_plane(refusing: DataPlaneProcess) -> None:
    reply = refusing.get("/v1/usage/req_" + "0" * 32)
    assert check_error(reply, 503, "api_error")["code"] == "receipts_unavailable"
    for unknown in ("req_1", "req_" + "0" * 31 + "%2F", "../../etc", "x"):
        assert refusing.get(f"/v1/usage/{unknown}").status_code == 404


def test_models_are_those_of_the_key(refusing: DataPlaneProcess) -> None:
    everything = refusing.get("/v1/models").json()
    assert everything["object"] == "list"
    assert "alias" in {model["id"] for model in everything["data"]}
    mine = refusing.get("/v1/models", LIMITED_SECRET).json()
    assert mine["data"] == [
        {"id": "small", "object": "model", "created": 1795960705, "owned_by": "forebay"}
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("mistralai/Mistral-7B", "mistralai/Mistral-7B"),
        ("mistralai%2FMistral-7B", "mistralai/Mistral-7B"),
        ("hf.co/x/y:Q4_K_M", "hf.co/x/y:Q4_K_M"),
        ("hf.co%2Fx%2fy%3AQ4_K_M", "hf.co/x/y:Q4_K_M"),
        ("hf.co/x/y:Q4_K_M/", "hf.co/x/y:Q4_K_M"),
        ("mod%C3%A8le", "modèle"),
    ],
)
def test_case_64_one_model_by_any_spelling_of_its_name(
    refusing: DataPlaneProcess, path: str, name: str
) -> None:
    reply = exchange(refusing.port, request_bytes(b"", method="GET", path=f"/v1/models/{path}"))
    assert (reply.status, json.loads(reply.body)["id"]) == (200, name)


def test_case_64_an_unknown_model_is_a_404_of_the_contract(refusing: DataPlaneProcess) -> None:
    error = check_error(refusing.get("/v1/models/a/b:c"), 404, "invalid_request_error")
    assert error["code"] == "model_not_found"


def test_case_64_names_with_slashes_are_served(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    for prefix in ("/v1", "", "/v1/v1"):
        for name in ("mistralai/Mistral-7B", "hf.co/x/y:Q4_K_M", "modèle"):
            engine.reply(whole(chat_reply(model="org/engine-model")))
            reply = plane.post(encode({**GOOD, "model": name}), path=prefix + "/chat/completions")
            assert (reply.status_code, reply.json()["model"]) == (200, name)
            assert plane.close_of(reply).identity.route == name


def test_health_and_ready_need_no_key(refusing: DataPlaneProcess) -> None:
    for path in ("/health", "/ready", "/health/"):
        reply = refusing.get(path, None)
        assert reply.status_code == 200
        assert reply.headers["x-request-id"].startswith("req_")
    assert refusing.client.head(refusing.url + "/health").status_code == 200

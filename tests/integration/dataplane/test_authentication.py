"""Secrets in every spelling that clients send, and nowhere where they could be read."""

from __future__ import annotations

import pytest

from tests.factories.engine_replies import chat_reply, encode, error_reply, whole
from tests.factories.snapshots import BLOCKED_SECRET, ENGINE_SECRET, REVOKED_SECRET, SECRET
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.raw_http import exchange, request_bytes
from tests.fixtures.scripted_engine import Reset, ScriptedEngine

BODY = encode({"model": "small", "messages": [{"role": "user", "content": "Hi"}]})
K = SECRET

ACCEPTED = [
    f"authorization: Bearer {K}",
    f"authorization: bearer {K}",
    f"authorization: BEARER {K}",
    f"Authorization: bEaReR {K}",
    f"authorization: Bearer  {K}",
    f"authorization:    Bearer {K}   ",
    f"authorization: Bearer {K}\t",
    f"x-api-key: {K}",
    f"X-API-Key:   {K} ",
    f"authorization: Basic dTpw\r\nx-api-key: {K}",
    f"authorization: Bearer\r\nx-api-key: {K}",
    f"authorization: Bearer {K}\r\nx-api-key: other",
]
REFUSED = [
    "x: y",
    "authorization: Bearer",
    "authorization:",
    f"authorization: {K}",
    f"authorization: Basic {K}",
    f"authorization: Bearer{K}",
    f"authorization: Bearer {K} x",
    f"authorization: Bearer {K.upper()}",
    f"authorization: Bearer {K}\u00e9",
    "authorization: Bearer \u00ff\u00fe",
    "x-api-key: \u00e9",
    "authorization: B\u00e9arer x",
    f"authorization: Token {K}",
    "authorization: Bearer " + "k" * 20_000,
    f"x-api-key: {K}{K}",
    f"proxy-authorization: Bearer {K}",
    f"cookie: authorization=Bearer {K}",
]


@pytest.mark.parametrize("header", ACCEPTED)
def test_case_68_accepted(plane: DataPlaneProcess, engine: ScriptedEngine, header: str) -> None:
    engine.reply(whole(chat_reply()))
    reply = exchange(plane.port, request_bytes(BODY, headers=header + "\r\n"))
    assert reply.status == 200, reply.body


@pytest.mark.parametrize("header", REFUSED, ids=lambda header: ascii(header)[:50])
def test_case_68_refused(plane: DataPlaneProcess, engine: ScriptedEngine, header: str) -> None:
    reply = exchange(plane.port, request_bytes(BODY, headers=header + "\r\n"))
    assert reply.status == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")
    assert set(reply.error) == {"message", "type", "param", "code"}
    assert engine.requests == []


def test_case_68_a_secret_in_the_query_does_not_count(plane: DataPlaneProcess) -> None:
    path = f"/v1/models?api_key={K}&key={K}"
    assert (
        exchange(plane.port, request_bytes(b"", method="GET", path=path, headers="")).status == 401
    )


def test_case_74_secrets_are_in_no_answer_and_no_log(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """Refusals, engine failures with the secret in them, broken connections, odd paths."""
    unknown = "fb-test-notakey-31337"
    engine.reply(whole(b"no", 500))
    engine.reply_once(error_reply(f"bad token {ENGINE_SECRET}", 401))
    engine.reply_once(whole(f"Traceback: Bearer {ENGINE_SECRET}".encode(), 500))
    engine.reply_once(Reset())
    engine.reply_once(whole(b"<html>" + ENGINE_SECRET.encode()))
    answers = [plane.chat() for _ in range(4)]
    for secret in (unknown, K[3:], REVOKED_SECRET, BLOCKED_SECRET):
        answers.append(plane.chat(secret=secret))
        answers.append(plane.get("/v1/models", secret))
    answers.append(plane.get(f"/v1/models?key={K}", None))
    answers.append(plane.post(b'{"model": broken', authorization=f"Bearer {K}"))
    told = "".join(reply.text + str(reply.headers) for reply in answers)
    assert {reply.status_code for reply in answers} == {400, 401, 403, 502}
    journal = b"".join(path.read_bytes() for path in plane.journal_dir.rglob("*.log"))
    for secret in (K, K[3:], unknown, REVOKED_SECRET, BLOCKED_SECRET, ENGINE_SECRET):
        assert secret not in told
        assert secret not in plane.log
        assert secret.encode() not in journal

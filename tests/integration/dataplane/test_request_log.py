"""The request log of a real data plane: a line for each settled request, and nobody's words."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from billing.usage.event import CloseRecord
from gateway.snapshot.model import Deployment, Replica, Route
from tests.factories.engine_replies import (
    STREAM_HEAD,
    chat_reply,
    chunk,
    error_reply,
    piece,
    total_chunk,
    usage,
    whole,
)
from tests.factories.snapshots import make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import ScriptedEngine, run_scripted_engine
from tests.fixtures.streamed import Streamed

PROMPT, ANSWER = "a secret question", "a secret answer"
STREAM = STREAM_HEAD + b"".join(
    map(
        piece,
        [
            chunk(ANSWER, counts=usage(9, 3), model="engine"),
            chunk(finish="stop", counts=usage(9, 3), model="engine"),
            total_chunk(9, 3, model="engine"),
            b"data: [DONE]\n\n",
        ],
    )
)


class Logged:
    """A data plane with two engines, and its request log."""

    def __init__(
        self, plane: DataPlaneProcess, path: Path, bad: ScriptedEngine, good: ScriptedEngine
    ) -> None:
        self.plane, self.path, self.bad, self.good = plane, path, bad, good

    def lines(self, path: Path | None = None) -> list[dict[str, Any]]:
        text = (path or self.path).read_text()
        assert not text or text.endswith("\n")
        assert PROMPT not in text
        assert ANSWER not in text
        return [json.loads(line) for line in text.splitlines()]

    def line_of(self, request_id: str) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            if not self.path.exists():
                return []
            return [line for line in self.lines() if line["request_id"] == request_id]

        wait_for(found, "its line is written", 10)
        (line,) = found()
        return line

    def ask(self, **body: Any) -> Any:
        messages = [{"role": "user", "content": PROMPT}]
        return self.plane.chat(model="pair", messages=messages, **body)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    directory = tmp_path_factory.mktemp("logged")
    path = directory / "requests.jsonl"
    with (
        run_scripted_engine() as bad,
        run_scripted_engine() as good,
        run_data_plane(directory / "state", bad.url, request_log=str(path)) as plane,
    ):
        replicas = (Replica("rep_bad", bad.url), Replica("rep_good", good.url))
        deployment = Deployment("dep_pair", "pair of two", "engine", replicas, retry_share=1.0)
        base = make_snapshot(plane.version + 1, bad.url, dead_url=plane.dead_url)
        plane.publish(
            msgspec.structs.replace(
                base,
                routes=base.routes | {"pair": Route("route_pair", "pair", "dep_pair")},
                deployments=base.deployments | {"dep_pair": deployment},
            )
        )
        plane.wait_published()
        yield Logged(plane, path, bad, good)


def check_like(line: dict[str, Any], close: CloseRecord) -> None:
    """The line says what the close record says."""
    identity = close.identity
    for name in ("request_id", "organization_id", "project_id", "api_key_id", "endpoint", "route"):
        assert line[name] == getattr(identity, name)
    for name in ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens"):
        assert line[name] == getattr(close.usage, name)
    for name in ("http_status", "replica_id", "error_code", "attempts"):
        assert line[name] == getattr(close, name)
    assert (line["status"], line["is_stream"]) == (close.status.value, identity.is_stream)
    assert abs(line["e2e_ms"] - (close.finished_at_us - identity.started_at_us) / 1000) < 100


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_request_that_was_tried_twice(logged: Logged, is_stream: bool) -> None:
    logged.bad.reply(error_reply("broken", 500))
    logged.good.reply(STREAM if is_stream else whole(chat_reply(ANSWER, model="engine")))
    for _ in range(40):  # which of two is met first is chance
        if is_stream:
            got = Streamed(logged.plane, model="pair")
            assert got.text == ANSWER
            close = got.close
        else:
            close = logged.plane.close_of(logged.ask())
        if close.attempts == 2:
            break
    line = logged.line_of(close.identity.request_id)
    check_like(line, close)
    assert (line["requested_route"], line["deployment"]) == ("pair", "pair of two")
    assert line["replica_id"] == line["decision"]["replica"] == "rep_good"
    assert line["decision"]["passed_over"] == {"rep_bad": "tried"}
    (earlier,) = line["earlier_attempts"]
    assert (earlier["replica_id"], earlier["outcome"]) == ("rep_bad", "failed")
    assert (line["ttft_ms"] is not None) is is_stream
    assert line["at"].endswith("Z")
    assert stat.S_IMODE(logged.path.stat().st_mode) == 0o600


def test_a_choice_between_two_shows_their_scores_and_a_refusal_its_code(logged: Logged) -> None:
    for engine in (logged.bad, logged.good):
        engine.reply(error_reply(PROMPT + " is wrong", 400))
    reply = logged.ask()
    line = logged.line_of(reply.headers["x-request-id"])
    check_like(line, logged.plane.close_of(reply))
    assert (line["status"], line["http_status"]) == ("rejected", 400)
    assert line["decision"]["scores"].keys() | line["decision"].get("passed_over", {}).keys() == {
        "rep_bad",
        "rep_good",
    }


def test_what_is_refused_before_admission_has_a_line_if_its_caller_is_known(
    logged: Logged,
) -> None:
    assert logged.plane.chat(secret="fb-wrong").status_code == 401
    unknown = logged.plane.chat(model=PROMPT, stream=True)
    wrong = logged.ask(max_tokens="many")
    after = logged.line_of(unknown.headers["x-request-id"])
    assert (after["status"], after["http_status"], after["attempts"]) == ("refused", 404, 0)
    assert (after["error_code"], after["is_stream"]) == ("model_not_found", True)
    assert after["requested_route"] is after["route"] is after["decision"] is None
    assert after["e2e_ms"] >= 0
    line = logged.line_of(wrong.headers["x-request-id"])
    assert (line["http_status"], line["is_stream"]) == (400, None)
    assert line["api_key_id"] == after["api_key_id"] != ""
    assert line.keys() == after.keys()
    assert all(line["http_status"] != 401 for line in logged.lines())


def test_a_log_that_was_moved_away_is_begun_anew_and_its_end_is_written(logged: Logged) -> None:
    for engine in (logged.bad, logged.good):
        engine.reply(whole(chat_reply(ANSWER, model="engine")))
    before = logged.line_of(logged.ask().headers["x-request-id"])
    moved = logged.path.with_suffix(".1")
    logged.path.rename(moved)
    after = logged.line_of(logged.ask().headers["x-request-id"])
    assert logged.lines(moved)[-1] == before
    assert logged.lines() == [after]
    last = logged.ask().headers["x-request-id"]  # of a process that is told to end at once
    logged.plane.stop()
    assert logged.lines()[-1]["request_id"] == last
    logged.plane.start()

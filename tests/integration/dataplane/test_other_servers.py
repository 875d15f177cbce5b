"""Engines that are no vLLM: without a health address, with names they do not list, without an endpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from gateway.snapshot.model import Deployment, Replica, Route
from tests.factories.engine_replies import chat_reply
from tests.factories.snapshots import make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, run_data_plane
from tests.fixtures.processes import wait_for


@contextmanager
def run_server(*, listed: str, health: int = 200, chat: int = 200) -> Iterator[str]:
    """Serve chats, or refuse them as a web server would that has no such address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self.answer(200, {"object": "list", "data": [{"id": listed, "object": "model"}]})
            else:
                self.answer(health if self.path == "/health" else 404, {"detail": "Not Found"})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = chat_reply("hello", model=listed) if chat == 200 else {"detail": "Not Found"}
            self.answer(chat, body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataPlaneProcess]:
    state: Path = tmp_path_factory.mktemp("others") / "state"
    with ExitStack() as stack:
        alias, no_health, without, sound = (
            stack.enter_context(run_server(listed="/models/file.gguf")),
            stack.enter_context(run_server(listed="engine", health=404)),
            stack.enter_context(run_server(listed="engine", chat=404)),
            stack.enter_context(run_server(listed="engine")),
        )
        plane = stack.enter_context(run_data_plane(state, sound, probe_seconds=0.2))
        urls = {
            "alias": [alias],
            "no-health": [no_health],
            "pair": [without, sound],
            "lone": [without],
            "fallback": [sound],
        }
        deployments = {
            f"dep_{name}": Deployment(
                f"dep_{name}",
                name,
                "engine",
                tuple(Replica(f"rep_{name}_{at}", url) for at, url in enumerate(of)),
                retry_share=0.0,
            )
            for name, of in urls.items()
        }
        with_fallback = {"alias": "alias", "no-health": "no-health", "carried": "lone"}
        alone = {name: name for name in ("pair", "lone", "fallback")}
        routes = {
            name: Route(
                f"route_{name}",
                name,
                f"dep_{deployment}",
                fallbacks=("fallback",) if name in with_fallback else (),
            )
            for name, deployment in (with_fallback | alone).items()
        }
        base = make_snapshot(plane.version + 1, sound, dead_url=plane.dead_url)
        plane.publish(
            msgspec.structs.replace(
                base,
                routes=base.routes | routes,
                deployments=base.deployments | deployments,
            )
        )
        plane.wait_published()
        # Probed, and the engine without the endpoint has listed its model to us.
        wait_for(lambda: plane.chat(model="lone").status_code == 400, "all are probed")
        yield plane


@pytest.mark.parametrize("route", ["alias", "no-health"])
def test_its_own_engine_serves_though_a_fallback_is_there(
    plane: DataPlaneProcess, route: str
) -> None:
    replies = [plane.chat(model=route) for _ in range(8)]
    assert {reply.status_code for reply in replies} == {200}
    assert {reply.headers["x-forebay-replica"] for reply in replies} == {f"rep_{route}_0"}


def test_an_engine_without_the_endpoint_is_passed_over_for_free(plane: DataPlaneProcess) -> None:
    told = plane.chat(model="lone")
    assert told.json()["error"]["code"] == "unsupported_by_model"
    for route in ("pair", "carried"):
        assert [plane.chat(model=route).status_code for _ in range(20)] == [200] * 20

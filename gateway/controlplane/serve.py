"""The control-plane process: one Granian worker in this very process, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket

from granian.constants import HTTPModes, Interfaces
from granian.errors import FatalError
from granian.server.embed import Server
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from admin_ui.app import create_app as create_admin_ui
from gateway.controlplane.app import create_app
from gateway.controlplane.config import ControlPlaneConfig
from gateway.controlplane.side_by_side import serve_side_by_side

_log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_FAILED = 1


def run(config: ControlPlaneConfig) -> int:
    """Serve the control API and the admin UI; return the exit code when told to stop."""
    try:
        address = _find_address(config.host, config.port)
    except OSError as error:
        reason = error.strerror or str(error)
        _log.error("the control plane cannot listen on %s:%d: %s", config.host, config.port, reason)
        return EXIT_FAILED
    control_api = create_app(config)
    admin_ui = create_admin_ui(
        local_base_url(config.host, config.port),
        is_secure_cookie=config.is_secure_cookie,
        public_base_url=config.public_base_url,
    )
    return asyncio.run(_serve(serve_side_by_side(control_api, admin_ui), config, address))


def local_base_url(host: str, port: int) -> str:
    """Return how this process reaches itself when it listens on ``host``."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{port}"
    if address.is_unspecified:
        address = ipaddress.ip_address("::1" if address.version == 6 else "127.0.0.1")
    return f"http://[{address}]:{port}" if address.version == 6 else f"http://{address}:{port}"


async def _serve(app: ASGIApp, config: ControlPlaneConfig, address: str) -> int:
    stop, has_started = asyncio.Event(), asyncio.Event()
    server = Server(
        _noting_start(app, has_started),
        address=address,
        port=config.port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        log_enabled=False,  # ours go through logging like all else
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stopping = asyncio.create_task(_stop(server, stop, has_started))
    _log.info("the control plane listens on %s:%d", config.host, config.port)
    try:
        await server.serve()
    except FatalError as error:
        _log.error("the control plane stopped: %s", error)
        return EXIT_FAILED
    finally:
        stopping.cancel()
    return EXIT_FAILED if server.interrupt_children else EXIT_OK


async def _stop(server: Server, stop: asyncio.Event, has_started: asyncio.Event) -> None:
    """Stop the server when asked to; Granian forgets a stop while the application still starts."""
    await stop.wait()
    await has_started.wait()
    server.stop()  # type: ignore[no-untyped-call]


def _noting_start(app: ASGIApp, has_started: asyncio.Event) -> ASGIApp:
    """Return the application; the event is set once its lifespan has begun."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_noting(message: Message) -> None:
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                has_started.set()

        await app(scope, receive, send_noting if scope["type"] == "lifespan" else send)

    return serve


def _find_address(host: str, port: int) -> str:
    """Return the host's IP address, which Granian wants, once it is known to be free.

    Raises :class:`OSError`; Granian's own error is a panic.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
    return str(address[0])

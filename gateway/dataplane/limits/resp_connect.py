"""Reaching the Redis server that a URL names, with its options as redis-py reads them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from redis.asyncio.connection import SSLConnection, parse_url

from gateway.dataplane.limits.resp_connection import RedisAwayError, RespConnection

_MOST_REDIRECTIONS = 3


async def connect(
    url: str, *, timeout_seconds: float, probe_key: bytes, on_lost: Callable[[str], None]
) -> RespConnection:
    """Connect to the server that holds ``probe_key``; a cluster's node may name another.

    Raises :class:`RedisAwayError`.
    """
    options: dict[str, Any] = dict(parse_url(url))
    for _ in range(_MOST_REDIRECTIONS):
        connection = await _open(options, timeout_seconds, on_lost)
        try:
            await connection.ask(b"EXISTS", probe_key)
        except RedisAwayError as error:
            connection.close(str(error))
            if not str(error).startswith("MOVED "):
                raise
            host, _, port = str(error).split()[2].rpartition(":")
            options.update(host=host or options.get("host"), port=int(port))
        except BaseException:
            connection.close("given up")
            raise
        else:
            return connection
    raise RedisAwayError("The cluster's nodes name one another.")


async def _open(
    options: dict[str, Any], timeout_seconds: float, on_lost: Callable[[str], None]
) -> RespConnection:
    loop = asyncio.get_running_loop()

    def make() -> RespConnection:
        return RespConnection(timeout_seconds=timeout_seconds, on_lost=on_lost)

    try:
        async with asyncio.timeout(max(1.0, timeout_seconds)):
            if "path" in options:
                _, connection = await loop.create_unix_connection(make, options["path"])
            else:
                _, connection = await loop.create_connection(
                    make,
                    options.get("host", "localhost"),
                    options.get("port", 6379),
                    ssl=_tls_context(options),
                )
    except (OSError, TimeoutError) as error:
        raise RedisAwayError(f"{type(error).__name__}: {error}") from error
    try:
        await _log_in(connection, options)
    except BaseException:
        connection.close("it was not let in")
        raise
    return connection


def _tls_context(options: Mapping[str, Any]) -> ssl.SSLContext | None:
    """Return how to check the server; None without TLS. The URL's options are redis-py's.

    Raises OSError for a file that cannot be read.
    """
    if options.get("connection_class") is not SSLConnection:
        return None
    context = ssl.create_default_context(
        cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path")
    )
    if options.get("ssl_cert_reqs") == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif str(options.get("ssl_check_hostname", "true")).lower() in {"false", "no", "0"}:
        context.check_hostname = False
    if options.get("ssl_certfile"):
        context.load_cert_chain(
            options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password")
        )
    return context


async def _log_in(connection: RespConnection, options: Mapping[str, Any]) -> None:
    if options.get("password"):
        login = [options["username"].encode()] if options.get("username") else []
        await connection.ask(b"AUTH", *login, options["password"].encode())
    if options.get("db"):
        await connection.ask(b"SELECT", b"%d" % options["db"])

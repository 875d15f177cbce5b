"""Ports: is it free, which one is."""

from __future__ import annotations

import errno
import socket

from gateway.up.errors import OptionError, PortTakenError

_ANY_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


def reserve_port(host: str, port: int, option: str) -> int:
    """Return ``port`` if we could listen on it, a free one for 0.

    ``option`` names the setting in the sentence. Raises :class:`PortTakenError` or
    :class:`OptionError`. The port is not held: whoever listens later may still lose a race, and
    says so.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise OptionError(f"--host {host} cannot be resolved: {error.strerror}.") from None
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        # As servers do: connections of an earlier run in TIME_WAIT are no hindrance.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(1)
        except OSError as error:
            raise _explained(error, host, port, option) from None
        return int(listener.getsockname()[1])


def _explained(error: OSError, host: str, port: int, option: str) -> PortTakenError | OptionError:
    if error.errno == errno.EADDRINUSE:
        return PortTakenError(
            f"Port {port} on {host} is in use by another process; free it or choose another"
            f" with {option}."
        )
    if error.errno == errno.EACCES:
        return OptionError(f"Port {port} needs rights that this account lacks; choose {option}.")
    if error.errno == errno.EADDRNOTAVAIL:
        return OptionError(f"--host {host} is no address of this machine.")
    return OptionError(f"Cannot listen on {host}, port {port}: {error.strerror}.")


def url_of(host: str, port: int) -> str:
    """Return ``http://HOST:PORT`` as this machine reaches it (a wildcard becomes loopback)."""
    reachable = _ANY_ADDRESSES.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"

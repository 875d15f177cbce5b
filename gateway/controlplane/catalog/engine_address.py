"""The address of an engine, as an admin may write it."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from urllib.parse import urlsplit

from gateway.controlplane.text_fields import check_no_space, check_visible

_DEFAULT_PORTS = {"http": 80, "https": 443}
_OWN_HOST = "127.0.0.1"


def normalize_engine_address(value: str) -> str:
    """Return scheme, authority and any prefix, without ``/v1`` and without a slash at the end.

    Raises ValueError for another scheme than http(s), a missing host, a user name or password (a
    secret has its own field, and addresses are shown), a query or a fragment.
    """
    text = check_no_space(check_visible(value.strip()))
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError("is not an address") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ValueError("must be an address like http://10.0.0.7:8000")
    if "@" in parts.netloc:
        raise ValueError("must not hold a user name or password; use secret")
    if parts.query or parts.fragment:
        raise ValueError("must not hold a query or a fragment")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def identify_engine(base_url: str) -> str:
    """Return one text for all ways to write the address of an engine: to compare, not to ask.

    Case of the host, a port that is the scheme's own, ``localhost`` or its number, and what
    :func:`normalize_engine_address` takes away make no difference. Raises ValueError where that does.
    """
    parts = urlsplit(normalize_engine_address(base_url))
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    with suppress(ValueError):  # a name
        host = str(ipaddress.ip_address(host))
    host = _OWN_HOST if host == "localhost" else host
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}{parts.path}"

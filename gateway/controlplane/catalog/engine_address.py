"""The address of an engine, as an admin may write it."""

from __future__ import annotations

from urllib.parse import urlsplit

from gateway.controlplane.text_fields import check_no_space, check_visible


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

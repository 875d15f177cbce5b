"""Ask the control API and turn its errors into sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from gateway.cli.errors import CliError, NotRunningError, RefusedError
from gateway.cli.locate import get_control_plane
from gateway.settings import Settings

_TIMEOUT_SECONDS = 30.0


class ControlClient:
    """One command's conversation with the control API."""

    def __init__(self, settings: Settings) -> None:
        import httpx  # not in a slim data-plane install, whose commands never come here

        self._url, token = get_control_plane(settings)
        self._http = httpx.Client(
            base_url=f"{self._url}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_SECONDS,
            verify=self._url.startswith("https"),  # reading the certificates takes 40 ms
            trust_env=False,  # the admin token must not pass a proxy that the environment names
            limits=httpx.Limits(max_keepalive_connections=0),  # nothing is left to be closed
        )

    def get(self, path: str, **query: str | int | None) -> dict[str, Any]:
        """Return the answer to ``GET path``; parameters that are None stay away.

        Raises :class:`NotRunningError` or :class:`RefusedError`.
        """
        given = {name: value for name, value in query.items() if value is not None}
        return self._ask("GET", path, query=given)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to ``POST path``; fields that are None stay away.

        Raises :class:`NotRunningError` or :class:`RefusedError`.
        """
        given = {name: value for name, value in (body or {}).items() if value is not None}
        return self._ask("POST", path, body=given)

    def upload(self, path: str, content: bytes) -> dict[str, Any]:
        """Return the answer to ``POST path`` with ``content`` as it is.

        Raises :class:`NotRunningError` or :class:`RefusedError`.
        """
        return self._ask("POST", path, content=content)

    def patch(self, path: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to ``PATCH path``; a None is sent as null, which is not absence.

        Raises :class:`NotRunningError` or :class:`RefusedError`.
        """
        return self._ask("PATCH", path, body=changes)

    def delete(self, path: str) -> dict[str, Any]:
        """Return the answer to ``DELETE path``.

        Raises :class:`NotRunningError` or :class:`RefusedError`.
        """
        return self._ask("DELETE", path)

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        content: bytes | None = None,
    ) -> dict[str, Any]:
        import httpx

        _check_numbers(body)
        try:
            reply = self._http.request(method, path, params=query, json=body, content=content)
            answer = reply.json()
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise NotRunningError(
                f"Forebay's control plane does not answer at {self._url}; is `forebay up` running?"
            ) from None
        except httpx.HTTPError as error:
            raise RefusedError(f"The control plane at {self._url} failed: {error}.") from None
        except ValueError:
            raise RefusedError(
                f"What answers at {self._url} is no Forebay control plane."
            ) from None
        if reply.is_success and isinstance(answer, dict):
            return answer
        raise RefusedError(_sentence(answer, reply.status_code))


def _check_numbers(content: Any, option: str = "") -> None:
    """Raise :class:`CliError` for a number that JSON has no word for; fields are called as options."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            _check_numbers(value, name)
    elif isinstance(content, list | tuple):
        for value in content:
            _check_numbers(value, option)
    elif isinstance(content, float) and not math.isfinite(content):
        raise CliError(f"--{option.replace('_', '-')} must be a finite number, not {content}.")


def _sentence(content: Any, status: int) -> str:
    try:
        message, param = content["error"]["message"], content["error"].get("param")
    except (KeyError, TypeError):
        return f"The control plane answered with HTTP status {status}."
    # Most messages name the field themselves; named twice it reads like two.
    is_named = not param or re.search(rf"(?<!\w){re.escape(param)}(?!\w)", message)
    return str(message) if is_named else f"{message} ({param})"

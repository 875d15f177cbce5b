"""Reading a posted form: small, URL-encoded, one value a field."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

_MOST_BYTES = 16 * 1024
_MOST_FIELDS = 20


class FormRefusedError(Exception):
    """Not a form of ours: too large, or of another kind."""


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of the form; the last one wins when a field comes twice.

    Raises :class:`FormRefusedError`.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise FormRefusedError("The form is not URL-encoded.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise FormRefusedError("The form is too large.")
    try:
        return dict(
            parse_qsl(
                body.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_MOST_FIELDS,
            )
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise FormRefusedError("The form could not be read.") from error

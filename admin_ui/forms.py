"""Reading a posted form: small, URL-encoded, one value a field, and from our own page."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

from admin_ui.csrf import is_genuine

_MOST_BYTES = 16 * 1024
_MOST_FIELDS = 20


_STALE_FORM = "This form had gone stale. Please try again."


class FormRefusedError(Exception):
    """Not a form of ours: too large, of another kind, or not from our page. Fit for a page."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


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


async def read_own_form(request: Request, cookie_secret: str | None) -> dict[str, str]:
    """Return the fields of a form that our own page sent from the browser that holds the cookie.

    Raises :class:`FormRefusedError`.
    """
    form = await read_form(request)
    if not is_genuine(request, form, cookie_secret):
        raise FormRefusedError(_STALE_FORM, status=403)
    return form

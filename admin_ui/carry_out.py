"""What a form of ours is answered: done, and back to the page; or the page again, with the reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from admin_ui.control_errors import ControlError
from admin_ui.forms import FormRefusedError, read_own_form
from admin_ui.require_session import SignedIn, get_signed_in


class ShowAgain(Protocol):
    """Makes the page that the form stands on, with what went wrong."""

    def __call__(
        self, signed_in: SignedIn, *, status: int, problem: str
    ) -> Awaitable[Response]: ...


async def carry_out(
    request: Request,
    act: Callable[[SignedIn, dict[str, str]], Awaitable[None]],
    *,
    page_path: str,
    show_again: ShowAgain,
) -> Response:
    """Read the form, have ``act`` do what it asks, and lead back to the page, which says so.

    ``act`` raises :class:`FormRefusedError` for a form that makes no sense, and ControlError.
    """
    signed_in = get_signed_in(request)
    try:
        form = await read_own_form(request, signed_in.token)
        await act(signed_in, form)
    except FormRefusedError as error:
        return await show_again(signed_in, status=error.status, problem=str(error))
    except ControlError as error:
        return await show_again(signed_in, status=error.page_status, problem=str(error))
    return RedirectResponse(f"{page_path}?done={form['action']}", status_code=303)

"""Proof that a form was served by us to this very browser.

A form carries an HMAC of a secret that lives in an HttpOnly cookie: the session token once signed in,
a random login nonce before. Nothing is stored, and neither cookie can be read from the form's token.
"""

from __future__ import annotations

import hmac
import secrets

from starlette.requests import Request

FORM_FIELD = "csrf_token"
_PURPOSE = b"forebay admin form"


def new_nonce() -> str:
    """Return a fresh secret for a browser that has no session yet."""
    return secrets.token_urlsafe(32)


def csrf_token(cookie_secret: str) -> str:
    """Return the token for forms of the browser that holds ``cookie_secret``."""
    return hmac.digest(cookie_secret.encode(), _PURPOSE, "sha256").hex()


def is_genuine(request: Request, form: dict[str, str], cookie_secret: str | None) -> bool:
    """Say whether a posted form came from our own page in the browser that holds the cookie.

    Sec-Fetch-Site is checked too, where the browser sends it: cookies are shared between the ports
    of a host, so another server there could plant a login nonce of its own.
    """
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return False
    if not cookie_secret:
        return False
    given = form.get(FORM_FIELD, "")
    return hmac.compare_digest(given.encode(), csrf_token(cookie_secret).encode())

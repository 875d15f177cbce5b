"""Templates and static files: what turns figures into an HTML answer."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from admin_ui import formatting
from admin_ui.control_records import Member

STATIC_FOLDER = Path(__file__).with_name("static")
_TEMPLATE_FOLDER = Path(__file__).with_name("templates")
_FORMATTERS = (
    formatting.clock_text,
    formatting.count_text,
    formatting.day_text,
    formatting.decimal_string,
    formatting.duration_text,
    formatting.fraction_text,
    formatting.machine_time,
    formatting.moment_text,
    formatting.money_text,
    formatting.number_string,
    formatting.number_text,
    formatting.percent,
    formatting.rounded_money,
    formatting.short_count,
    formatting.small_rate,
    formatting.status_words,
    formatting.thresholds_text,
)


class Renderer:
    """Renders templates: everything is escaped, an unknown name is an error, not an empty string."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(_TEMPLATE_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        for formatter in _FORMATTERS:
            self._environment.globals[formatter.__name__] = formatter
        self._environment.globals["asset"] = _asset_addresses().__getitem__

    def page(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """Return the page; ``values`` are the template's names."""
        return HTMLResponse(
            self._environment.get_template(template).render(**values), status_code=status
        )

    def error_page(
        self,
        *,
        status: int,
        title: str,
        message: str,
        advice: str | None = None,
        member: Member | None = None,
        csrf_token: str | None = None,
    ) -> HTMLResponse:
        """Return a page that says what went wrong and what to do."""
        return self.page(
            "error.html",
            status=status,
            title=title,
            message=message,
            advice=advice,
            member=member,
            csrf_token=csrf_token,
        )


def _asset_addresses() -> dict[str, str]:
    """Return each static file's address, with a mark of its content so that caches never go stale."""
    return {
        path.name: f"/static/{path.name}?v={hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
        for path in sorted(STATIC_FOLDER.iterdir())
    }

"""A part of a page that stands on its own: it may fail and leave the others whole."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Generic, TypeVar

from admin_ui.control_errors import ControlError

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Section(Generic[T]):
    """What one call gave: its value, or the sentence that says why there is none."""

    value: T | None
    problem: str | None = None


async def load_section(call: Awaitable[T]) -> Section[T]:
    """Wait for ``call``; its failure becomes the section's sentence."""
    try:
        return Section(await call)
    except ControlError as error:
        _log.warning("a section of a page could not be loaded: %s", error)
        return Section(None, str(error))

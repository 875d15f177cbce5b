"""The fields of a model's ``config.json``: counts and lists under whichever of their names is there.

Pure. What is no count is refused with its name, never passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billing.costing.errors import ModelConfigError


def find_figure(config: Mapping[str, Any], *names: str) -> int | None:
    """Return the first count of these names, None where there is none.

    Raises :class:`ModelConfigError` for what is no whole number of 0 or more.
    """
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ModelConfigError(f"{name} is {value!r:.40}, which is no count")
        return value
    return None


def get_figure(config: Mapping[str, Any], *names: str) -> int:
    """Return the first count of these names. Raises :class:`ModelConfigError` if there is none."""
    value = find_figure(config, *names)
    if not value:
        raise ModelConfigError(
            f"the config has no {names[0]}: is it a language model's config.json?"
        )
    return value


def list_field(config: Mapping[str, Any], name: str) -> list[Any]:
    """Return the list of this name, empty where there is none."""
    value = config.get(name)
    return value if isinstance(value, list) else []


def is_set(value: Any) -> bool:
    """Return whether a field says anything: null, false, 0 and what is empty say nothing."""
    return value is not None and value is not False and value not in (0, "", [], {})

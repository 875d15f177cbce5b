"""Checks of an answer's text: regular expressions whose time grows with the text alone.

Python's own can take for ever on a pattern such as ``(a+)+$``, and a check runs beside everybody's
requests. Those of the Rust library that pydantic brings have neither backreferences nor look-around.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

MAX_PATTERN_CHARACTERS = 500


@lru_cache(maxsize=256)
def compile_check(pattern: str) -> Callable[[str], bool] | None:
    """Return what searches a text for the pattern; None for one that is none."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # noqa: PLC0415 - rarely wanted

    try:
        schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
        return SchemaValidator(schema).isinstance_python
    except SchemaError:
        return None

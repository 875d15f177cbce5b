"""The kinds of text that requests carry, checked where they enter.

PostgreSQL cannot hold NUL, and a name with control characters or surrogates cannot be shown or
logged safely.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated
from zoneinfo import available_timezones

from fastapi import Query
from pydantic import AfterValidator, StringConstraints

MAX_NAME_CHARACTERS = 200
# Control characters, surrogates, unassigned: nothing that a name needs.
_REFUSED_CATEGORIES = ("Cc", "Cs", "Cn")

# Files beside the zones: what the machine is set to, and what it is set to as long as nobody did.
_NO_PLACE_ZONES = ("localtime", "Factory")


def check_visible(value: str) -> str:
    """Return ``value`` if all its characters can be stored and shown; raise ValueError if not."""
    if any(unicodedata.category(character) in _REFUSED_CATEGORIES for character in value):
        raise ValueError("must not contain control characters")
    return value


def check_no_space(value: str) -> str:
    """Return ``value`` if there is no white space in it; raise ValueError if there is."""
    if any(character.isspace() for character in value):
        raise ValueError("must not contain white space")
    return value


def check_time_zone(value: str) -> str:
    """Return the IANA name if there is such a zone; raise ValueError if not."""
    if value not in available_timezones() or value in _NO_PLACE_ZONES:
        raise ValueError("is not the name of a time zone, like Europe/Zurich")
    return value


# Names that people give: "Support assistant".
Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_CHARACTERS),
    AfterValidator(check_visible),
]
# Names that programs send: "mistralai/Mistral-7B", "hf.co/x/y:Q4_K_M".
ModelName = Annotated[Name, AfterValidator(check_no_space)]
# Ids as a query sends them; check_filters.py refuses those that name nothing.
IdQuery = Annotated[
    str | None,
    Query(max_length=MAX_NAME_CHARACTERS),
    AfterValidator(lambda value: value if value is None else check_visible(value)),
]
TimeZoneName = Annotated[str, AfterValidator(check_time_zone)]

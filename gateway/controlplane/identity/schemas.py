"""Requests and answers about organizations, projects, members and API keys."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from gateway.controlplane.identity.api_keys import IssuedKey, state_of
from gateway.controlplane.identity.models import ONE_WEIGHT, ApiKey
from gateway.controlplane.money_fields import AmountText, MoneyAmount
from gateway.controlplane.passwords import MAX_PASSWORD_CHARACTERS
from gateway.controlplane.text_fields import ModelName, Name, TimeZoneName, check_visible
from gateway.controlplane.time_fields import Moment

MAX_GRACE_SECONDS = 30 * 24 * 3600
_MAX_ROUTES_PER_KEY = 1000
MIN_WEIGHT = Decimal("0.01")
MAX_WEIGHT = Decimal(100)


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Answer(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class SignInRequest(_Request):
    """An email, in any case, and a password."""

    email: Annotated[
        str,
        StringConstraints(strip_whitespace=True, to_lower=True, min_length=1, max_length=320),
        AfterValidator(check_visible),
    ]
    password: Annotated[str, StringConstraints(min_length=1, max_length=MAX_PASSWORD_CHARACTERS)]


class MemberAnswer(_Answer):
    """A member; ``id`` and ``email`` are null for the admin token."""

    id: str | None
    email: str | None
    role: str


class SignInAnswer(_Answer):
    """A session; the token is shown this once."""

    token: str
    expires_at: datetime
    member: MemberAnswer


def _check_weight(value: Decimal) -> Decimal:
    if not MIN_WEIGHT <= value <= MAX_WEIGHT:
        raise ValueError(f"must be from {MIN_WEIGHT} to {MAX_WEIGHT}")
    return value


Weight = Annotated[MoneyAmount, AfterValidator(_check_weight)]  # exact, as money is written


class NewOrganizationRequest(_Request):
    """``price_book`` is an id or a name; without it the only book there is.

    ``weight`` is its share beside others that wait.
    """

    name: Name
    time_zone: TimeZoneName = "UTC"
    price_book: Name | None = None
    weight: Weight = ONE_WEIGHT


class OrganizationChange(_Request):
    """What is absent stays (no default below counts); ``weight`` null: 1, like all without one."""

    weight: Weight | None = None
    time_zone: TimeZoneName = "UTC"


class OrganizationAnswer(_Answer):
    """An organization."""

    id: str
    name: str
    time_zone: str
    price_book_id: str | None
    weight: AmountText
    created_at: datetime


class NewProjectRequest(_Request):
    """Without ``organization_id``: the only organization there is."""

    name: Name
    organization_id: Name | None = None


class ProjectAnswer(_Answer):
    """A project."""

    id: str
    organization_id: str
    name: str
    created_at: datetime


class NewKeyRequest(_Request):
    """``allowed_routes`` null or absent: every route; an empty list: none."""

    name: Name
    project_id: Name | None = None
    allowed_routes: Annotated[list[ModelName], Field(max_length=_MAX_ROUTES_PER_KEY)] | None = None
    expires_at: Moment | None = None


class RotateKeyRequest(_Request):
    """How long the old secret goes on working; 0: not at all."""

    grace_seconds: Annotated[int, Field(strict=True, ge=0, le=MAX_GRACE_SECONDS)] = 0


class KeyAnswer(_Answer):
    """An API key without its secret.

    Limits and budgets of the key are kept, and listed, under ``lineage_id``: of a key that came of
    rotations the id of the first, else its own.
    """

    id: str
    project_id: str
    project: str
    name: str
    secret_hint: str
    state: str
    allowed_routes: list[str] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    blocked_at: datetime | None
    rotated_from_id: str | None
    lineage_id: str

    @classmethod
    def of(cls, key: ApiKey, *, now: datetime) -> Self:
        """Return the answer about ``key``, whose project is loaded."""
        return cls(**_fields_of(key, now=now))


class IssuedKeyAnswer(KeyAnswer):
    """A new API key with its secret, shown this once."""

    secret: str

    @classmethod
    def issued(cls, issued: IssuedKey, *, now: datetime) -> Self:
        """Return the answer about a key just made."""
        return cls(**_fields_of(issued.key, now=now), secret=issued.secret)


def _fields_of(key: ApiKey, *, now: datetime) -> dict[str, object]:
    return {
        "id": key.id,
        "project_id": key.project.id,
        "project": key.project.name,
        "name": key.name,
        "secret_hint": key.secret_hint,
        "state": state_of(key, now=now),
        "allowed_routes": key.allowed_routes,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "blocked_at": key.blocked_at,
        "rotated_from_id": key.rotated_from_id,
        "lineage_id": key.lineage,
    }

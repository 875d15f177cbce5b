"""Tier policies of routes, as requests and answers carry them.

A policy is set as a whole: thresholds mean nothing apart from their tiers.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from billing.money import format_amount, parse_amount
from gateway.controlplane.money_fields import exact_text
from gateway.controlplane.text_fields import MAX_NAME_CHARACTERS, ModelName
from gateway.snapshot.model import CascadePolicy
from gateway.snapshot.weights import NAME_PATTERN

MAX_TIERS = 8
MAX_PROJECTS = 1000
SHARE_DECIMALS = 4
_CASCADE = CascadePolicy()

# In headers, metrics and receipts.
TierName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
Threshold = Annotated[float, Field(strict=True, ge=-2, le=2, allow_inf_nan=False)]
Thresholds = Annotated[list[Threshold], Field(min_length=1, max_length=MAX_TIERS - 1)]
ClassifierName = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
ProjectId = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARACTERS)]


def _share(value: Any) -> Decimal:
    share = parse_amount(exact_text(value))
    if share > 1:
        raise ValueError("is more than the whole saving, which is 1")
    if share != round(share, SHARE_DECIMALS):
        raise ValueError(f"has at most {SHARE_DECIMALS} decimals")
    return share


SavingShare = Annotated[Decimal, BeforeValidator(_share)]


class TierRequest(BaseModel):
    """One tier: its name, and the route that serves it, by id or public name."""

    model_config = ConfigDict(extra="forbid")

    name: TierName
    route: ModelName


class CascadeWeightsRequest(BaseModel):
    """What an answer's beginning counts for: a likelier one never lowers the confidence."""

    model_config = ConfigDict(extra="forbid")

    bias: Annotated[float, Field(strict=True, ge=-100, le=100, allow_inf_nan=False)]
    mean_logprob: Annotated[float, Field(strict=True, ge=0, le=100, allow_inf_nan=False)]
    min_logprob: Annotated[float, Field(strict=True, ge=0, le=100, allow_inf_nan=False)]
    prompt_score: Annotated[float, Field(strict=True, ge=-100, le=0, allow_inf_nan=False)]


class CascadeRequest(BaseModel):
    """How a tier below the last answers first; what is left out has the Snapshot's default."""

    model_config = ConfigDict(extra="forbid")

    tokens: Annotated[int, Field(strict=True, ge=1, le=256)] = _CASCADE.tokens
    keep_at: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)] = (
        _CASCADE.keep_at
    )
    decide_ms: Annotated[float, Field(strict=True, gt=0, le=10_000, allow_inf_nan=False)] = (
        _CASCADE.decide_ms
    )
    weights: CascadeWeightsRequest = CascadeWeightsRequest(
        bias=_CASCADE.weights.bias,
        mean_logprob=_CASCADE.weights.mean_logprob,
        min_logprob=_CASCADE.weights.min_logprob,
        prompt_score=_CASCADE.weights.prompt_score,
    )


class TierPolicyRequest(BaseModel):
    """Tiers from the cheapest to the dearest, and where each but the first begins.

    ``saving_share`` is the part of the saving that the customer keeps; only with ``saving_shared``.
    ``project_thresholds`` stand in the place of ``thresholds`` for the projects with these ids.
    """

    model_config = ConfigDict(extra="forbid")

    tiers: Annotated[list[TierRequest], Field(min_length=2, max_length=MAX_TIERS)]
    thresholds: Thresholds
    default_tier: TierName
    budget_ms: Annotated[float, Field(strict=True, gt=0, le=100, allow_inf_nan=False)] = 2.0
    charge: Literal["as_served", "as_requested", "saving_shared"] = "as_served"
    saving_share: SavingShare | None = None
    project_thresholds: Annotated[
        dict[ProjectId, Thresholds], Field(max_length=MAX_PROJECTS, default_factory=dict)
    ]
    classifier: ClassifierName | None = None
    cascade: CascadeRequest | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [tier.name for tier in self.tiers]
        if len(set(names)) < len(names):
            raise ValueError("two tiers have one name")
        if self.default_tier not in names:
            raise ValueError(f"there is no tier {self.default_tier!r} to be the default")
        for thresholds in (self.thresholds, *self.project_thresholds.values()):
            if len(thresholds) != len(names) - 1:
                raise ValueError(
                    f"{len(names)} tiers have {len(names) - 1} thresholds between them"
                )
            if any(one >= other for one, other in pairwise(thresholds)):
                raise ValueError("thresholds must ascend, each above the one before")
        if (self.charge == "saving_shared") != (self.saving_share is not None):
            raise ValueError("saving_share goes with the charge saving_shared, and that with it")
        return self


class TierAnswer(BaseModel):
    """One tier; ``route`` is a public name."""

    name: str
    route: str


class TierPolicyAnswer(BaseModel):
    """A route's tiers; ``saving_share`` null: no saving is shared, ``classifier``: the shipped one."""

    tiers: list[TierAnswer]
    thresholds: list[float]
    default_tier: str
    budget_ms: float
    charge: str
    saving_share: str | None
    project_thresholds: dict[str, list[float]]
    classifier: str | None
    cascade: CascadeRequest | None  # null: whoever is chosen answers

    @classmethod
    def of(cls, kept: Mapping[str, Any], names: Mapping[str, str]) -> Self:
        """Return the answer about a policy as the database keeps it."""
        share, cascade = kept.get("saving_share"), kept.get("cascade")
        return cls(
            tiers=[
                TierAnswer(name=tier["name"], route=names.get(tier["route_id"], tier["route_id"]))
                for tier in kept["tiers"]
            ],
            thresholds=kept["thresholds"],
            default_tier=kept["default_tier"],
            budget_ms=kept["budget_ms"],
            charge=kept["charge"],
            saving_share=None if share is None else format_amount(Decimal(share)),
            project_thresholds=kept["project_thresholds"],
            classifier=kept.get("classifier"),
            cascade=None if cascade is None else CascadeRequest(**cascade),
        )

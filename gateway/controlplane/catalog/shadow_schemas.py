"""Shadow policies of routes, as requests and answers carry them. A policy is set as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import SchemaError, SchemaValidator, core_schema

from billing.money import format_amount
from gateway.controlplane.money_fields import MoneyAmount
from gateway.controlplane.text_fields import ModelName

MAX_PATTERN_CHARACTERS = 500
DEFAULT_TARGET_QUALITY = 0.95

Fraction = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
Currency = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=MAX_PATTERN_CHARACTERS)]


class ShadowPolicyRequest(BaseModel):
    """Which requests another tier is asked too, what that may cost, and what follows from it.

    ``check`` goes with ``exact``, ``judge_route`` with ``judge``. The target is one of two: the part
    of the dearest tier's quality to be kept (0.95 where neither is given), or the share of requests
    above a threshold. ``rolls_back`` absent: if there is a floor.
    """

    model_config = ConfigDict(extra="forbid")

    share: Share
    daily_budget: MoneyAmount
    currency: Currency
    method: Literal["exact", "agreement", "judge"] = "agreement"
    check: Pattern | None = None
    judge_route: ModelName | None = None
    quality_floor: Fraction | None = None
    window_hours: Annotated[int, Field(strict=True, ge=1, le=90 * 24)] = 7 * 24
    min_samples: Annotated[int, Field(strict=True, ge=20, le=100_000)] = 200
    target_quality: Fraction | None = None
    target_large_share: Fraction | None = None
    moves_threshold: Annotated[bool, Field(strict=True)] = False
    rolls_back: Annotated[bool, Field(strict=True)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.check is not None and self.method != "exact":
            raise ValueError("a check goes with the method exact")
        if self.check is not None and not _is_pattern(self.check):
            raise ValueError(
                "the check is no regular expression of linear time:"
                " it may have no look-around and no backreference"
            )
        if (self.method == "judge") != (self.judge_route is not None):
            raise ValueError("judge_route goes with the method judge, and that with it")
        if self.target_quality is not None and self.target_large_share is not None:
            raise ValueError("give one target: a quality or a share")
        if self.rolls_back and self.quality_floor is None:
            raise ValueError("rolls_back needs a quality_floor to hold")
        return self

    def kept(self, judge_route_id: str | None) -> dict[str, Any]:
        """Return the policy as the database keeps it."""
        has_target = self.target_quality is not None or self.target_large_share is not None
        return {
            "share": self.share,
            "daily_budget": format_amount(self.daily_budget),
            "currency": self.currency,
            "method": self.method,
            "check": self.check,
            "judge_route_id": judge_route_id,
            "quality_floor": self.quality_floor,
            "window_hours": self.window_hours,
            "min_samples": self.min_samples,
            "target_quality": self.target_quality if has_target else DEFAULT_TARGET_QUALITY,
            "target_large_share": self.target_large_share,
            "moves_threshold": self.moves_threshold,
            "rolls_back": (
                self.quality_floor is not None if self.rolls_back is None else self.rolls_back
            ),
        }


class ShadowPolicyAnswer(BaseModel):
    """A route's shadow policy; ``judge_route`` is a public name."""

    share: float
    daily_budget: str
    currency: str
    method: str
    check: str | None
    judge_route: str | None
    quality_floor: float | None
    window_hours: int
    min_samples: int
    target_quality: float | None
    target_large_share: float | None
    moves_threshold: bool
    rolls_back: bool

    @classmethod
    def of(cls, kept: Mapping[str, Any], names: Mapping[str, str]) -> Self:
        """Return the answer about a policy as the database keeps it."""
        fields = dict(kept)
        judge = fields.pop("judge_route_id")
        fields["daily_budget"] = format_amount(Decimal(fields["daily_budget"]))
        return cls(judge_route=None if judge is None else names.get(judge, judge), **fields)


def _is_pattern(pattern: str) -> bool:
    """Tell whether data planes will take it: theirs is the same library."""
    try:
        SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return False
    return True

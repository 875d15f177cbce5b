"""The control API's answers about what is served, as far as the fleet page reads them.

``None`` is what was not set: the default, or what the engine says itself.
"""

from __future__ import annotations

from datetime import datetime

from admin_ui.control_records import Record


class Replica(Record, frozen=True, kw_only=True):
    """One running server of a deployment."""

    id: str
    base_url: str
    weight: float = 1.0
    is_draining: bool = False
    labels: dict[str, str]
    agent_url: str | None = None


class Capabilities(Record, frozen=True, kw_only=True):
    """What a deployment's engines can do, as it was set."""

    context_tokens: int | None = None
    features: list[str] | None = None
    adapters: list[str] | None = None


class SleepSettings(Record, frozen=True, kw_only=True):
    """When a deployment sleeps; ``keep_warm_seconds`` of None: never."""

    keep_warm_seconds: float | None = None
    wake_limit_seconds: float | None = None


class Deployment(Record, frozen=True, kw_only=True):
    """One model in one version and configuration."""

    id: str
    name: str
    engine_model: str
    max_in_flight: int | None = None
    capabilities: Capabilities = Capabilities()
    sleep: SleepSettings = SleepSettings()
    replicas: tuple[Replica, ...] = ()


class Tier(Record, frozen=True, kw_only=True):
    """One of the routes that serve another one's requests."""

    name: str
    route: str


class Cascade(Record, frozen=True, kw_only=True):
    """From which confidence the answer of a tier that answers first is kept."""

    keep_at: float


class TierPolicy(Record, frozen=True, kw_only=True):
    """A route's tiers, from the cheapest to the dearest, and where each but the first begins."""

    tiers: tuple[Tier, ...]
    thresholds: tuple[float, ...]
    cascade: Cascade | None = None


class LedRoute(Record, frozen=True, kw_only=True):
    """A public model name with where it leads."""

    id: str = ""
    name: str
    deployment: str = ""
    fallbacks: tuple[str, ...] = ()
    tiers: TierPolicy | None = None


class Tokens(Record, frozen=True, kw_only=True):
    """Input and output tokens."""

    input: int
    output: int


class Shares(Record, frozen=True, kw_only=True):
    """Fractions from 0 to 1."""

    input: float
    output: float


class Drift(Record, frozen=True, kw_only=True):
    """Our counts beside the engines' own, of one deployment in one hour.

    ``excess`` is what the engines counted beyond ours and what running, aborted and failed requests
    explain; below 0: what they counted less.
    """

    hour: datetime
    deployment: str
    tokens: Tokens
    engine_tokens: Tokens
    excess: Tokens
    excess_share: Shares
    is_over: bool


class Reconciliation(Record, frozen=True, kw_only=True):
    """The comparison of the last day, and the rule that says what drift is."""

    percent: float
    min_tokens: int
    is_over: bool
    data: tuple[Drift, ...] = ()

"""The control API's answers about costs and serving, as the costs page reads them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from admin_ui.control_records import Record


class Choice(Record, frozen=True, kw_only=True):
    """One way to serve the load; without ``per_month`` it cannot be had, for the ``reason``."""

    kind: str
    replicas: int
    spare_replicas: int
    started_replicas: int = 0
    cold_starts: int = 0
    per_month: Decimal | None = None
    spilled_share: Decimal | None = None
    reason: str | None = None


class Fleet(Record, frozen=True, kw_only=True):
    """A base of so many replicas, with what is beyond it sent elsewhere."""

    replicas: int
    hybrid_per_month: Decimal
    dedicated_per_month: Decimal | None = None
    spilled_share: Decimal
    hours_over: int


class Comparison(Record, frozen=True, kw_only=True):
    """The three choices, and the one to take."""

    serverless: Choice
    dedicated: Choice
    hybrid: Choice
    best: str
    fleets: tuple[Fleet, ...] = ()
    peak_replicas: int = 0

    @property
    def choices(self) -> tuple[Choice, Choice, Choice]:
        """Return all three."""
        return (self.serverless, self.dedicated, self.hybrid)

    @property
    def best_choice(self) -> Choice:
        """Return the one to take."""
        return next(choice for choice in self.choices if choice.kind == self.best)


class Load(Record, frozen=True, kw_only=True):
    """The load that is compared."""

    hours: int
    requests: int
    tokens_per_day: Decimal
    tokens_per_second: Decimal
    cached_share: Decimal
    output_share: Decimal
    serverless_per_million: Decimal


class Crossing(Record, frozen=True, kw_only=True):
    """Where a fleet costs what serverless asks."""

    cost_per_day: Decimal
    tokens_per_day: Decimal
    tokens_per_second: Decimal


class FleetCrossing(Record, frozen=True, kw_only=True):
    """The crossing of so many replicas, spares left out."""

    replicas: int
    spare_replicas: int = 0  # in the cost
    crossing: Crossing
    capacity_tokens_per_second: Decimal
    break_even_utilization: Decimal
    utilization_today: Decimal
    is_reachable: bool


class UtilizationRow(Record, frozen=True, kw_only=True):
    """One replica held at one utilization all day; its fleet's spares are in the cost."""

    utilization: Decimal
    dedicated_per_day: Decimal


class Band(Record, frozen=True, kw_only=True):
    """The middle 95 of 100 resamples."""

    low: Decimal
    high: Decimal


class Bands(Record, frozen=True, kw_only=True):
    """Of the monthly costs by choice, and of the saving."""

    days: int
    costs: dict[str, Band]
    saving: Band
    best_share: Decimal


class ServerlessCost(Record, frozen=True, kw_only=True):
    """What the hours cost at one price."""

    name: str
    total: Decimal


class SensitivityRow(Record, frozen=True, kw_only=True):
    """The choice with one figure changed."""

    figure: str
    factor: Decimal
    serverless: Decimal
    dedicated: Decimal | None = None
    hybrid: Decimal | None = None
    best: str
    replicas: int


class BusyHour(Record, frozen=True, kw_only=True):
    """One hour's load, and the replicas that it keeps busy."""

    hour_at: datetime
    tokens: Decimal
    replicas: Decimal | None = None


class CrossoverSection(Record, frozen=True, kw_only=True):
    """The answer about one route, or about all together (None); or the ``problem`` with it."""

    route: str | None = None
    problem: str | None = None
    ledger_notes: tuple[str, ...] = ()
    answer: str = ""
    currency: str | None = None
    load: Load | None = None
    comparison: Comparison | None = None
    serverless_costs: tuple[ServerlessCost, ...] = ()
    bands: Bands | None = None
    crossings: tuple[FleetCrossing, ...] = ()
    utilizations: tuple[UtilizationRow, ...] = ()
    notes: tuple[str, ...] = ()
    saving_per_month: Decimal | None = None
    sensitivity: tuple[SensitivityRow, ...] = ()
    hours: tuple[BusyHour, ...] = ()


class Crossover(Record, frozen=True, kw_only=True):
    """The report: all together first, or the one route that was asked for."""

    first_hour_at: datetime
    last_hour_at: datetime
    currency: str | None = None  # None: all together were charged in several
    gpu: str | None = None
    gpu_price_per_hour: Decimal
    serverless: str
    apart_per_month: Decimal | None = None
    data: tuple[CrossoverSection, ...]


class ChargeSpread(Record, frozen=True, kw_only=True):
    """How charges spread over requests, in one currency."""

    currency: str
    requests: int
    total: Decimal
    mean: Decimal
    median: Decimal
    p95: Decimal
    p99: Decimal
    most: Decimal
    top_requests: int
    top_share: Decimal | None = None
    p99_to_median: Decimal | None = None


class ChargeSpreads(Record, frozen=True, kw_only=True):
    """The spreads by currency."""

    data: tuple[ChargeSpread, ...]
    unpriced_requests: int = 0


class Percentiles(Record, frozen=True, kw_only=True):
    """Of one time, in milliseconds; None where no request had it."""

    p50: Decimal | None = None
    p95: Decimal | None = None
    p99: Decimal | None = None


class ServingRow(Record, frozen=True, kw_only=True):
    """How one group's requests were served."""

    group: str
    label: str
    requests: int
    measured_requests: int
    completed_requests: int
    unjudged_requests: int = 0
    unpriced_requests: int = 0
    met_requests: int
    met_share: Decimal | None = None
    goodput_requests_per_second: Decimal
    goodput_tokens_per_second: Decimal
    ttft_ms: Percentiles
    tpot_ms: Percentiles
    e2e_ms: Percentiles
    currency: str | None = None
    charge: Decimal | None = None
    charge_per_met_request: Decimal | None = None
    cost_per_met_request: Decimal | None = None


class Serving(Record, frozen=True, kw_only=True):
    """How requests were served, by group and all together."""

    data: tuple[ServingRow, ...]
    total: ServingRow


class PriceBook(Record, frozen=True, kw_only=True):
    """A set of prices of our own."""

    id: str
    name: str
    currency: str


class CapacityProfileRow(Record, frozen=True, kw_only=True):
    """A measured capacity that is stored."""

    name: str
    gpus: int
    points: int

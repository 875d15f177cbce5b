"""The Snapshot: all that a data-plane worker knows of the catalog, as plain versioned data.

The control plane builds it after commit and publishes it; a worker holds one, swaps it whole and
keeps the last good one. A worker that meets another ``schema_version`` keeps what it has.
"""

from __future__ import annotations

import msgspec

SCHEMA_VERSION = 1


class ApiKeyEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ApiKey as the data plane sees it; found by the SHA-256 of its secret (hex)."""

    id: str
    project_id: str
    organization_id: str
    price_book_id: str
    expires_at_us: int | None = None  # checked at use, never at publication
    is_revoked: bool = False
    is_blocked: bool = False
    allowed_routes: tuple[str, ...] | None = None  # public names; None: every route, (): none
    # Of a key that came of rotations, the id of the first. None: it is the first itself.
    lineage_id: str | None = None

    @property
    def lineage(self) -> str:
        """Return the id by which limits and budgets of the key are found, after rotations too."""
        return self.lineage_id or self.id


class RateLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One limit; its ``id`` names the counter, so a changed amount keeps what was used.

    A metric is ``requests``, ``input_tokens``, ``output_tokens``, ``total_tokens`` or
    ``in_flight``; a scope is ``key``, ``project``, ``organization`` or ``route``.
    """

    id: str
    scope: str
    scope_id: str  # of the key (its lineage), project, organization or route that it holds for
    metric: str
    amount: int  # at most so many; 0 lets nothing through
    per_seconds: int = 0  # 1, 60, 3600 or 86400; 0 with in_flight
    route_id: str | None = None  # only requests of this route count


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """The most that may be charged in a window; decimal text in ``currency``.

    A scope is ``key``, ``project`` or ``organization``; a window is ``daily``, ``weekly``,
    ``monthly`` (of the calendar in ``time_zone``) or ``lifetime``.
    """

    id: str
    name: str
    scope: str
    scope_id: str
    window: str
    amount: str  # "0" lets nothing through
    currency: str
    time_zone: str = "UTC"  # IANA name, of the organization
    is_hard: bool = True  # False: over it, requests are served and the Caller is warned
    # What was charged, when this was published, in the window that begun then: until the spend
    # feed knows of the budget, lest a new one be empty for a moment.
    spent: str = "0"
    spent_since_us: int = 0


class QueuePolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a route's requests wait while its deployment is saturated."""

    priority: str = "interactive"  # or "batch"
    size: int = 100  # waiting requests of this route, shared among all workers; 0: none waits
    deadline_seconds: float = 30.0


class Replica(msgspec.Struct, frozen=True, omit_defaults=True):
    """One running server of a deployment."""

    id: str
    base_url: str  # scheme and authority and any prefix, without "/v1"
    secret: str | None = None  # bearer token that the engine asks for
    weight: float = 1.0  # its share beside its siblings; 0: only when no other can serve
    is_draining: bool = False  # gets nothing new
    labels: dict[str, str] = {}
    agent_url: str | None = None  # of the process that starts, wakes and stops it, if one does


class Capabilities(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a deployment's engines can do, as an admin says it; None: whatever the engine says.

    Features are ``chat``, ``completions``, ``embeddings``, ``tools``, ``vision`` and
    ``json_schema``; one that nobody has named counts as there.
    """

    context_tokens: int | None = None  # prompt and output together
    features: tuple[str, ...] | None = None
    adapters: tuple[str, ...] | None = None  # LoRA adapters, by the names that engines know


class PickPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a choice among replicas weighs; each score is within 0..1, and 0 leaves it out."""

    load: float = 1.0  # tokens waiting and in flight there
    kv_room: float = 0.5  # free share of the KV cache
    prefix: float = 1.0  # how much of the prompt it has read before
    latency: float = 0.3  # measured time to first token
    session: float = 0.5  # it served this session before
    adapter: float = 0.5  # the LoRA adapter is loaded


class BreakerPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a replica is left alone for a while."""

    failures: int = 5  # in a row
    failure_share: float = 0.5  # of the latest requests, once there are ten within ten seconds
    open_seconds: float = 2.0  # then one request tries it; doubles up to sixteen times as long


class SleepPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a deployment nobody uses gives its GPU back, and how long a request waits for it."""

    keep_warm_seconds: float | None = None  # since its last request; None: it never sleeps
    wake_limit_seconds: float = 120.0  # a request waits so long for it to wake, then gets 503


class Deployment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model, version and configuration, on one or more replicas."""

    id: str
    name: str
    engine_model: str  # the name that its engines know
    replicas: tuple[Replica, ...] = ()
    max_in_flight: int | None = None  # requests that a replica serves at a time; None: any number
    capabilities: Capabilities = Capabilities()
    pick: PickPolicy = PickPolicy()
    breaker: BreakerPolicy = BreakerPolicy()
    sleep: SleepPolicy = SleepPolicy()
    retry_share: float = 0.1  # retries and fallbacks, of all requests; 0: none
    first_token_timeout_seconds: float | None = None  # None: the data plane's own
    idle_timeout_seconds: float | None = None  # between two tokens; None: the data plane's own
    reply_timeout_seconds: float | None = None  # of a whole answer; None: the data plane's own


class Tier(msgspec.Struct, frozen=True):
    """One step of a tier policy: what callers know it by, and the route that serves it."""

    name: str
    route: str  # its public name


class CascadeWeights(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an answer's beginning says of it: a logistic regression's weights.

    The defaults are a guess and measured nowhere; ``forebay router calibrate-cascade`` fits others.
    """

    bias: float = 2.5
    mean_logprob: float = 2.0  # of the first tokens; natural logarithms, 0 at most; never below 0
    min_logprob: float = 0.25  # of the least likely of them; never below 0
    prompt_score: float = -2.0  # the classifier's; never above 0


class CascadePolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a tier below the last answers first, and when the next above answers in its place."""

    tokens: int = 16  # of the answer that are looked at, the first
    keep_at: float = 0.5  # confidence, 0 to 1, from which the answer is kept
    decide_ms: float = 400.0  # since the first token; then what has come decides
    weights: CascadeWeights = CascadeWeights()


class TierPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a route shares its requests among other routes by how hard they are.

    A request whose score reaches ``thresholds[i]`` goes to the tier ``i + 1`` at least. A charge is
    ``as_served`` (the price of the route that answers), ``as_requested`` (this route's own price)
    or ``saving_shared`` (the customer keeps ``saving_share`` of what the last tier would have cost
    more).
    """

    tiers: tuple[Tier, ...]  # two at least, the cheapest first
    thresholds: tuple[float, ...]  # ascending, one fewer than tiers
    default_tier: str  # where there is no score
    budget_ms: float = 2.0  # time that scoring may take
    charge: str = "as_served"
    saving_share: str = "1"  # decimal text, 0 to 1
    project_thresholds: dict[str, tuple[float, ...]] = {}  # by project id, in their place
    classifier: str | None = None  # which weights score; None: the shipped ones
    cascade: CascadePolicy | None = None  # None: whoever is chosen answers


class ShadowPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which of a route's requests another of its tiers is asked too, and how both are compared.

    A method is ``exact`` (equal as JSON, or with a ``check`` whether each answer matches it),
    ``agreement`` (of the words) or ``judge`` (the route ``judge_route`` scores both).
    """

    share: float  # of the requests that have a score, 0 to 1
    daily_budget: str  # the most that its calls may cost in a day (UTC), decimal text
    currency: str
    method: str = "agreement"
    check: str | None = None  # a regular expression of linear time, searched in an answer's text
    judge_route: str | None = None  # its public name


class Route(msgspec.Struct, frozen=True, omit_defaults=True):
    """The public model name and where it leads."""

    id: str
    name: str
    deployment_id: str
    created_at_us: int = 0
    queue: QueuePolicy = QueuePolicy()
    fallbacks: tuple[str, ...] = ()  # public names, tried in this order when this one cannot
    tiers: TierPolicy | None = None  # routes that serve it, by the prompt; none of them has tiers
    shadow: ShadowPolicy | None = None  # only with tiers; None: no request is looked at twice


class ClassifierWeights(msgspec.Struct, frozen=True, omit_defaults=True):
    """The weights of a prompt classifier that are in effect; their bytes travel beside the Snapshot."""

    name: str
    version: int
    sha256: str
    size_bytes: int


class PriceEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One dated price of a route in a price book; decimal strings, per million tokens."""

    id: str
    price_book_id: str
    route_id: str
    effective_at_us: int
    currency: str
    input_per_million: str
    output_per_million: str
    cached_input_per_million: str | None = None  # None: cached input costs what input costs


class Snapshot(msgspec.Struct, frozen=True):
    """Everything at once, of one version.

    Its own fields are always written out, ``schema_version`` above all: left out as a default, a
    later version would read as ours.
    """

    version: int  # grows with every committed change
    published_at_us: int
    keys: dict[str, ApiKeyEntry] = {}
    routes: dict[str, Route] = {}  # by public name
    deployments: dict[str, Deployment] = {}  # by id
    prices: tuple[PriceEntry, ...] = ()
    limits: tuple[RateLimit, ...] = ()
    budgets: tuple[Budget, ...] = ()
    classifiers: dict[str, ClassifierWeights] = {}  # by name
    # Of organizations, by id: the share of one that waits beside others. Those of 1 are not named.
    organization_weights: dict[str, float] = {}
    schema_version: int = SCHEMA_VERSION

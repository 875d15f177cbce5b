"""What the data plane tells billing about one request: the journal's record types.

Plain data, shared by the writer (data plane) and the reader (billing worker). Times are integers of
microseconds since the epoch, UTC. Token counts are cumulative for the whole reply; ``None`` means
that the engine did not say, which is not the same as ``0``.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class RequestStatus(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"  # the engine's whole answer was relayed
    CLIENT_CLOSED = "client_closed"  # the client left (499); billed for what the engine produced
    TRUNCATED = "truncated"  # the engine's stream broke after output; billed for what came
    REJECTED = "rejected"  # the engine refused the client's request (4xx); not billed
    FAILED = "failed"  # the engine failed before any output; not billed
    INTERRUPTED = "interrupted"  # our worker died; billed for the last progress it had recorded
    VOIDED = "voided"  # our worker died before any progress was recorded; not billed


class TokenUsage(msgspec.Struct, array_like=True, frozen=True):
    """Cumulative token counts of one reply, as the engine reported them."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None  # part of input_tokens
    output_tokens: int | None = None
    reasoning_tokens: int | None = None  # part of output_tokens


class Fallback(msgspec.Struct, array_like=True, frozen=True):
    """That a request was served by another route than the one it asked for, and why."""

    requested_route: str  # its public name
    reason: str  # an error code, of the contract


class ChargeMode(StrEnum):
    """How a request is charged whose route chose among tiers."""

    AS_SERVED = "as_served"  # at the price of the route that answered
    AS_REQUESTED = "as_requested"  # at the price of the route that was asked for
    SAVING_SHARED = "saving_shared"  # as served, and a part of what the last tier costs more


class TierDecision(msgspec.Struct, array_like=True, frozen=True):
    """That a route chose among tiers for a request: which, why, and how that is charged."""

    requested_route_id: str
    requested_route: str  # its public name
    tier: str  # that answered; of a request that fell back to no tier, the one chosen
    reason: str  # a TierReason of routing/complexity/tier_policy.py
    score: float | None  # None: it was not scored
    charge_mode: str  # a ChargeMode
    saving_share: str  # decimal text: the part of the saving that the customer keeps
    counterfactual_route_id: str  # of the last tier: what all of it would have gone to


class ShadowLink(msgspec.Struct, array_like=True, frozen=True):
    """That the platform itself asked, to learn of a client's request: nobody's invoice has it."""

    request_id: str  # the client's
    # "answer": another tier was asked the same; "judge": a route was asked which is better;
    # "cascade": the client's own request, to a tier whose answer was given up unseen.
    kind: str
    requested_route_id: str  # that the client asked for
    requested_route: str  # its public name


class RequestIdentity(msgspec.Struct, array_like=True, frozen=True):
    """Who asked for what: fixed at admission, repeated in the close record.

    In the close record, and in progress records, of a request that fell back, route and deployment
    are those that served it, and its price is theirs. Of one whose route chose among tiers they are
    the tier's, from the open record on.
    """

    request_id: str
    organization_id: str
    project_id: str
    api_key_id: str
    route_id: str
    route: str  # the public name
    deployment_id: str
    endpoint: str  # "chat.completions", "completions" or "embeddings"
    is_stream: bool
    started_at_us: int  # arrival; decides the price and the partition
    fallback: Fallback | None = None
    tier: TierDecision | None = None
    shadow: ShadowLink | None = None  # then it is no request of the client's, whose ids it carries

    @property
    def requested_route(self) -> str:
        """The public name that the client asked for."""
        if self.tier is not None:
            return self.tier.requested_route
        return self.route if self.fallback is None else self.fallback.requested_route


class OpenRecord(msgspec.Struct, array_like=True, frozen=True, tag="o"):
    """Written at admission, before anything is sent to an engine."""

    identity: RequestIdentity


class ProgressRecord(msgspec.Struct, array_like=True, frozen=True, tag="p"):
    """Written about once a second for a running stream, so that a crash loses little."""

    request_id: str
    replica_id: str
    usage: TokenUsage
    at_us: int
    first_token_at_us: int | None = None
    identity: RequestIdentity | None = None  # once it fell back


class CloseRecord(msgspec.Struct, array_like=True, frozen=True, tag="c"):
    """Written at settlement, exactly once on every path."""

    identity: RequestIdentity
    status: RequestStatus
    http_status: int  # what the client was sent; 499 when it had left
    usage: TokenUsage
    replica_id: str | None
    attempts: int
    finished_at_us: int
    first_token_at_us: int | None = None
    error_code: str | None = None


class FeedbackRecord(msgspec.Struct, array_like=True, frozen=True, tag="f"):
    """What a client thought of the reply to one of its project's requests; no part of usage."""

    request_id: str
    organization_id: str
    project_id: str
    api_key_id: str
    score: float  # 0 (useless) to 1 (good)
    at_us: int
    comment: str | None = None  # only where the installation keeps such text


class ShadowScoreRecord(msgspec.Struct, array_like=True, frozen=True, tag="s"):
    """What two tiers' answers to one request were worth, 0 to 1; no part of usage, and no text.

    ``lower`` is the cheaper tier. Charges are what each would be charged at its own route's price,
    decimal text; None where that cannot be said.
    """

    request_id: str  # the client's
    organization_id: str
    project_id: str
    requested_route_id: str
    requested_route: str  # its public name
    served_tier: str  # one of the two
    lower_tier: str
    upper_tier: str
    method: str  # a ScoringMethod of routing/complexity/answer_scores.py
    lower_quality: float
    upper_quality: float
    tier_score: float  # the classifier's, of the prompt
    lower_charge: str | None
    upper_charge: str | None
    currency: str
    at_us: int


# Written only where no close needs the room.
SideRecord = ProgressRecord | FeedbackRecord | ShadowScoreRecord
JournalRecord = OpenRecord | ProgressRecord | CloseRecord | FeedbackRecord | ShadowScoreRecord


def event_id_of(request_id: str) -> str:
    """Return the id of the one UsageEvent of a request: ``req_X`` → ``evt_X``.

    Derived, not drawn, so that reading a journal twice yields the same event.
    """
    return "evt_" + request_id.removeprefix("req_")

"""Deployments as one worker serves them: replicas with their connections, what is known of them.

What is known (load, breakers, prompts read before, retries left) outlives a Snapshot; what a
Snapshot says (weights, drains, policies) takes effect at the swap.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass

import msgspec

from backends.http_pool import Endpoint
from backends.vllm.model_list import EngineFacts
from gateway.dataplane.fair_queue import share_of_capacity
from gateway.dataplane.http.head import HeaderLines, header_lines
from gateway.snapshot.model import Deployment, Replica
from routing.filters import find_obstacle, is_full
from routing.load_view import LoadView
from routing.picker import Decision, FleetMemory, choose
from routing.prober import Prober
from routing.replica_watch import ReplicaWatch
from routing.retry_budget import RetryBudget
from routing.types import ReplicaState, RequestShape

_PATHS = {
    "chat.completions": "/v1/chat/completions",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
}

_SERVING = (ReplicaState.READY, ReplicaState.SATURATED)

_RNG = random.Random()  # noqa: S311 - spreads load, guards nothing

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedReplica:
    """A replica with its connections and its load."""

    id: str
    endpoint: Endpoint
    heads: dict[str, bytes]  # by endpoint name: a request's head but for its own three lines
    line: HeaderLines  # what an answer from here says of it
    view: LoadView
    watch: ReplicaWatch | None  # None: it is not probed


@dataclass(frozen=True, slots=True)
class Fleet:
    """One deployment with its replicas."""

    deployment: Deployment
    replicas: dict[str, ServedReplica]  # by id
    views: tuple[LoadView, ...]
    memory: FleetMemory
    retry_budget: RetryBudget
    may_sleep: bool
    has_capabilities: bool  # that an admin has named: requests are held against them
    only: Decision | None = None  # for its one replica, if it has one: nearly always decided so

    def choose(self, shape: RequestShape, now: float, tried: Collection[str]) -> Decision | None:
        """Return where a request goes; None: nowhere."""
        only = self.only
        if only is not None and find_obstacle(only.view, shape, now, tried) is None:
            return only
        return choose(
            self.views,
            shape,
            self.deployment.pick,
            now=now,
            rng=_RNG,
            memory=self.memory,
            tried=tried,
        )

    def is_asleep(self, now: float) -> bool:
        """Tell whether no replica is known to work and one sleeps: to wake it is the best hope."""
        return self._has_sleeper and not any(_works(view, now) for view in self.views)

    def is_growth_due(self, now: float) -> bool:
        """Tell whether one sleeps while all that work are as busy as they can be."""
        return self._has_sleeper and not any(
            view.state is ReplicaState.READY and _works(view, now) and not is_full(view)
            for view in self.views
        )

    @property
    def _has_sleeper(self) -> bool:
        return any(
            view.state is ReplicaState.SLEEPING and not view.is_draining for view in self.views
        )

    def list_sleepers(self) -> list[Replica]:
        """Return those that sleep and do not drain."""
        asleep = {one.replica_id for one in self.views if one.state is ReplicaState.SLEEPING}
        replicas = self.deployment.replicas
        return [one for one in replicas if one.id in asleep and not one.is_draining]

    def list_to_wake(self) -> list[Replica]:
        """Return those of which the first that can be is to be woken: first who sleeps."""
        sleepers = self.list_sleepers()
        replicas = self.deployment.replicas
        return sleepers + [one for one in replicas if not one.is_draining and one not in sleepers]

    async def is_asleep_after_all(self, now: float) -> bool:
        """Ask again, of a fleet that nobody could be reached of: it may sleep since the last probe."""
        if not self.may_sleep:
            return False
        watches = [replica.watch for replica in self.replicas.values() if replica.watch is not None]
        await asyncio.gather(*(watch.probe_again() for watch in watches))
        if watches:
            return self.is_asleep(now)
        return any(not view.is_draining for view in self.views)  # nobody probes: waking them tells


def _works(view: LoadView, now: float) -> bool:
    breaker = view.breaker
    is_open = breaker.open_until is not None and not breaker.is_allowing(now)
    return view.state in _SERVING and not view.is_draining and not is_open


class FleetRegistry:
    """Keeps connections, loads and memories from one Snapshot to the next."""

    def __init__(
        self,
        make: Callable[[Replica], Endpoint],
        *,
        clock: Callable[[], float],
        prober: Prober | None,
        workers: int,
        index: int,
    ) -> None:
        """``index``: which of ``workers`` we are; ``clock``: the event loop's."""
        self._make = make
        self._clock = clock
        self._prober = prober
        self._workers = workers
        self._index = index
        self._endpoints: dict[tuple[str, str | None], Endpoint] = {}
        self._views: dict[str, LoadView] = {}
        self._watched: dict[str, tuple[object, ...]] = {}
        self._memories: dict[str, FleetMemory] = {}
        self._budgets: dict[str, RetryBudget] = {}

    def set_share(self, workers: int, index: int) -> None:
        """Take another part of each capacity, from the next :meth:`serve` on."""
        self._workers, self._index = workers, index

    def serve(self, deployment: Deployment) -> Fleet:
        """Return the deployment's fleet. A replica with a bad address is left out and logged."""
        memory = self._memories.setdefault(deployment.id, FleetMemory())
        budget = self._budgets.get(deployment.id)
        if budget is None:
            budget = RetryBudget(deployment.retry_share, self._clock())
            self._budgets[deployment.id] = budget
        budget.set_share(deployment.retry_share)
        served: dict[str, ServedReplica] = {}
        for replica in deployment.replicas:
            try:
                endpoint = self._endpoint_of(replica)
            except ValueError as error:
                _LOG.warning("snapshot: replica %s left out: %s", replica.id, error)
                continue
            heads = {name: _request_head(endpoint, path) for name, path in _PATHS.items()}
            view = self._view_of(deployment, replica)
            line = header_lines([("x-forebay-replica", replica.id)])
            watch = self._watch_of(deployment, replica, view, memory, endpoint)
            served[replica.id] = ServedReplica(replica.id, endpoint, heads, line, view, watch)
        views = tuple(replica.view for replica in served.values())
        may_sleep = deployment.sleep.keep_warm_seconds is not None or any(
            replica.agent_url is not None for replica in deployment.replicas
        )
        has_capabilities = deployment.capabilities.features is not None
        only = Decision(views[0]) if len(views) == 1 else None
        return Fleet(deployment, served, views, memory, budget, may_sleep, has_capabilities, only)

    def expect_start(self, replica_id: str, limit_seconds: float) -> None:
        """A replica that slept was woken: it serves, whatever the latest probe has seen."""
        watch = None if self._prober is None else self._prober.find(replica_id)
        if watch is not None:
            watch.expect_start(limit_seconds)
        view = self._views.get(replica_id)
        if view is not None:
            view.state = ReplicaState.READY

    def keep_only(self, deployments: list[Deployment]) -> None:
        """Let go of what is no longer served; who runs there ends undisturbed."""
        replicas = [replica for deployment in deployments for replica in deployment.replicas]
        for address in self._endpoints.keys() - {_address_of(replica) for replica in replicas}:
            self._endpoints.pop(address).close()
        ids = {replica.id for replica in replicas}
        for replica_id in self._views.keys() - ids:
            del self._views[replica_id]
            self._watched.pop(replica_id, None)
            if self._prober is not None:
                self._prober.forget(replica_id)
            for memory in self._memories.values():
                memory.forget(replica_id)
        kept = {deployment.id for deployment in deployments}
        for deployment_id in self._memories.keys() - kept:
            del self._memories[deployment_id], self._budgets[deployment_id]

    def _endpoint_of(self, replica: Replica) -> Endpoint:
        address = _address_of(replica)
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            endpoint = self._endpoints[address] = self._make(replica)
        return endpoint

    def _view_of(self, deployment: Deployment, replica: Replica) -> LoadView:
        view = self._views.get(replica.id)
        if view is None:
            view = self._views[replica.id] = LoadView(replica.id, deployment.breaker)
        view.breaker.set_limits(deployment.breaker)
        view.weight = replica.weight
        # One that is to serve nothing is passed over like one that drains, and not only when full.
        view.is_draining = replica.is_draining or deployment.max_in_flight == 0
        share = share_of_capacity(deployment.max_in_flight, self._workers, self._index)
        view.max_in_flight = share
        told = deployment.capabilities
        if told.context_tokens is not None:
            view.context_tokens = told.context_tokens
        view.features = None if told.features is None else frozenset(told.features)
        if told.adapters is not None:
            view.adapters = frozenset(told.adapters)
        return view

    def _watch_of(
        self,
        deployment: Deployment,
        replica: Replica,
        view: LoadView,
        memory: FleetMemory,
        lines: Endpoint,
    ) -> ReplicaWatch | None:
        """Have the replica probed, anew if its address or what is asked has changed."""
        if self._prober is None:
            return None
        is_sleeper = deployment.sleep.keep_warm_seconds is not None or replica.agent_url is not None
        wanted = (
            *_address_of(replica),
            replica.agent_url,
            deployment.sleep,
            deployment.capabilities,
            deployment.engine_model,
        )
        if self._watched.get(replica.id) == wanted:
            return self._prober.find(replica.id)
        self._watched[replica.id] = wanted
        told = deployment.capabilities
        model = deployment.engine_model
        if told.context_tokens is None:  # nor is what an admin said before: the engine is asked
            view.context_tokens = None
        if told.adapters is None:
            view.adapters = None

        def take_facts(facts: EngineFacts) -> None:
            memory.forget(replica.id)  # a new start of the engine has an empty cache
            if told.context_tokens is None:
                view.context_tokens = facts.context_tokens
            if told.adapters is None:
                view.adapters = frozenset(facts.adapters) if facts.adapters else None

        return self._prober.watch(
            replica.id,
            self._make(replica),
            view,
            wants_sleep_state=is_sleeper,
            on_facts=take_facts,
            agent=None
            if replica.agent_url is None
            else self._make(msgspec.structs.replace(replica, base_url=replica.agent_url)),
            keep_warm_seconds=deployment.sleep.keep_warm_seconds,
            # An admin's word that it is an adapter of the engines counts more than their list.
            model=None if model in (told.adapters or ()) else model,
            lines=lines,
        )


def _address_of(replica: Replica) -> tuple[str, str | None]:
    return (replica.base_url, replica.secret)


def _request_head(endpoint: Endpoint, path: str) -> bytes:
    return b"POST %b%b HTTP/1.1\r\n%baccept-encoding: identity\r\n%b" % (
        endpoint.prefix.encode(),
        path.encode(),
        endpoint.request_headers,
        b"content-type: application/json\r\n",
    )

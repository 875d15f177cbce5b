"""The overshoot bound of docs/admission.md, under any interleaving of any streams with any guesses."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.budgets.spend_feed import SpendFeed, WindowSpend
from billing.pricing.integer_charge import IntegerCharge
from billing.usage.event import RequestStatus, TokenUsage
from gateway.dataplane.limits.local_limiter import LocalLimiter
from gateway.dataplane.limits.redis_limiter import RedisLimiter
from gateway.dataplane.reservation import Reservation, make_reservation
from gateway.dataplane.sweep import _check_growth
from gateway.errors import ApiError
from tests.factories.limits import START_US, UNIT, SetClock, make_budget, make_plan
from tests.fixtures.limiters import until_ready

PRICE = IntegerCharge(
    currency="EUR",
    input_per_million=Decimal(1_000),  # 0.001 a token
    cached_input_per_million=None,
    output_per_million=Decimal(4_000),
)
IN, OUT = 1_000_000, 4_000_000  # nano a token
BUDGETS = ("bud_key", "bud_project", "bud_organization")


class _Guess:
    def __init__(
        self, input_tokens: int, output_tokens: int, *, is_counted: bool, beyond: int | None
    ) -> None:
        self.input_tokens, self.output_tokens = input_tokens, output_tokens
        self.is_counted = is_counted
        self.most_output_tokens = None if beyond is None else output_tokens + beyond


class _Connection:
    is_aborted = False

    def abort(self, error: Exception) -> None:
        self.is_aborted = True


@dataclass(eq=False)
class Request:
    """One admitted request, as the sweep sees it; its engine counts all the time."""

    guess = None
    uncounted_chunks = 0
    reservation: Reservation
    reserved: tuple[int, int]  # input and output at admission, which may be less than was guessed
    is_stream: bool
    real_input: int
    budgets: tuple[str, ...]
    worker: int
    connection: _Connection = field(default_factory=_Connection)
    produced_tokens: int = 0
    since_pass: int = 0  # produced since the sweep came by
    most_a_pass: int = 0
    most: int | None = None  # that its client allows
    is_settled: bool = False

    @property
    def stream_usage(self) -> Request:
        return self

    @property
    def is_known(self) -> bool:
        return self.is_stream

    def total(self) -> TokenUsage:
        return TokenUsage(self.real_input, None, self.produced_tokens, None)

    @property
    def charge(self) -> int:
        return self.real_input * IN + self.produced_tokens * OUT

    @property
    def bound(self) -> int:
        """What the documents allow it above its hold."""
        reserved_input, reserved_output = self.reserved
        low_input = max(0, self.real_input - reserved_input) * IN
        if self.is_stream:
            return low_input + self.most_a_pass * OUT
        return low_input + max(0, self.produced_tokens - reserved_output) * OUT


class World:
    """Some workers, their budgets, and what the true ledger says."""

    def __init__(self, amounts: list[int], limiters: list[LocalLimiter | RedisLimiter]) -> None:
        self.budgets = {
            name: make_budget(str(Decimal(amount) / 1000), "lifetime", name=name)
            for name, amount in zip(BUDGETS, amounts, strict=False)
        }
        self.amounts = {
            name: amount * UNIT // 1000 for name, amount in zip(BUDGETS, amounts, strict=False)
        }
        self.limiters = limiters
        # Who has the money: all together, or without Redis each worker its share of it.
        is_split = isinstance(limiters[0], LocalLimiter)
        self.purses = range(len(limiters)) if is_split else range(1)
        self.charged = {(name, purse): 0 for name in self.budgets for purse in self.purses}
        self.running: list[Request] = []
        self.in_flight_then: dict[tuple[str, int], list[Request]] = {
            key: [] for key in self.charged
        }
        self.closes: list[tuple[int, Request]] = []  # worker, request: in the order of the ends
        self.growing: set[asyncio.Task[None]] = set()
        self.version = 0
        self.numbers = 0

    def look(self) -> None:
        """Remember who was in flight when each budget ran out: the last time that it had not."""
        for (name, purse), charged in self.charged.items():
            running = [
                one for one in self.running if name in one.budgets and self.purse_of(one) == purse
            ]
            used = charged + sum(one.reservation.hold_nano for one in running)
            if used <= self.amounts[name] // len(self.purses):
                self.in_flight_then[name, purse] = running

    def purse_of(self, request: Request) -> int:
        return request.worker if len(self.purses) > 1 else 0

    async def arrive(self, draw: Any) -> None:
        self.numbers += 1
        names = draw(st.lists(st.sampled_from(sorted(self.budgets)), min_size=1, unique=True))
        worker = draw(st.integers(0, len(self.limiters) - 1))
        guess = _Guess(
            draw(st.one_of(st.integers(1, 60), st.integers(1, 6_000))),
            draw(st.integers(1, 300)),
            is_counted=draw(st.booleans()),
            beyond=draw(st.one_of(st.none(), st.integers(0, 300))),
        )
        is_stream = draw(st.booleans())
        reservation = make_reservation(
            self.limiters[worker],
            make_plan(*(self.budgets[name] for name in names)),
            guess,  # type: ignore[arg-type]
            PRICE,
            f"req_{self.numbers}",
            START_US,
            is_stream,
        )
        try:
            waiting = reservation.ask()
            while waiting is not None:
                waiting = reservation.hear(await waiting)
        except ApiError as error:
            if error.status != 402:
                raise
            return
        reserved = reservation.input_tokens, reservation.output_tokens
        guessed = guess.input_tokens
        if reserved[0] < guessed:  # half of it at least, and only where it is above a whole budget
            assert not guess.is_counted
            assert 2 * reserved[0] >= guessed
            assert PRICE.nano(guessed, 16) > min(self.amounts[name] for name in names)
        real_input = guessed if guess.is_counted else draw(st.integers(0, 2 * guessed))
        request = Request(reservation, reserved, is_stream, real_input, tuple(names), worker)
        request.most = guess.most_output_tokens
        if not is_stream:
            request.produced_tokens = min(draw(st.integers(0, 600)), request.most or 600)
        self.running.append(request)

    def produce(self, request: Request, tokens: int) -> None:
        if request.is_stream and not request.connection.is_aborted:
            if request.most is not None:  # which the engine keeps
                tokens = min(tokens, request.most - request.produced_tokens)
            request.produced_tokens += tokens
            request.since_pass += tokens
            request.most_a_pass = max(request.most_a_pass, request.since_pass)

    async def sweep(self) -> None:
        """Do what the sweep does in each growth pass."""
        for request in list(self.running):
            if request.is_stream:
                _check_growth(request, self.growing)  # type: ignore[arg-type]
                request.since_pass = 0
        while self.growing:
            await asyncio.gather(*self.growing)
            await asyncio.sleep(0)
        for request in self.running:
            if request.most is not None:  # no more is held than the client allows
                assert request.reservation.output_tokens <= request.most
                is_whole = request.reserved[1] == request.most
                assert not (is_whole and request.connection.is_aborted)
        for request in [one for one in self.running if one.connection.is_aborted]:
            await self.end(request, RequestStatus.TRUNCATED)

    async def end(self, request: Request, status: RequestStatus) -> None:
        self.running.remove(request)
        request.is_settled = True
        self.closes.append((request.worker, request))
        for name in request.budgets:
            self.charged[name, self.purse_of(request)] += request.charge
        usage = TokenUsage(request.real_input, None, request.produced_tokens)
        request.reservation.settle(status, usage, (0, len(self.closes)))
        await flush(self.limiters[request.worker])

    async def hear_ledger(self, stored: int) -> None:
        """Publish a feed of the first ``stored`` ends."""
        self.version += 1
        spent = dict.fromkeys(self.budgets, 0)
        for _, request in self.closes[:stored]:
            for name in request.budgets:
                spent[name] += request.charge
        feed = SpendFeed(
            version=self.version,
            positions={f"jrn_{n}": (0, stored) for n in range(len(self.limiters))},
            spent={
                name: WindowSpend(0, str(Decimal(nano) / UNIT))
                for name, nano in spent.items()
                if nano
            },
        )
        for limiter in self.limiters:
            limiter.use_feed(feed)
            await flush(limiter)

    def check(self) -> None:
        for (name, purse), charged in self.charged.items():
            bound = sum(one.bound for one in self.in_flight_then[name, purse])
            assert charged <= self.amounts[name] // len(self.purses) + bound, name


async def flush(limiter: LocalLimiter | RedisLimiter) -> None:
    """Wait until Redis has carried out what this worker sent."""
    if isinstance(limiter, RedisLimiter):
        connection = limiter._membership.connection
        assert connection is not None
        await connection.ask(b"PING")


async def play(data: st.DataObject, limiters: list[LocalLimiter | RedisLimiter], most: int) -> None:
    draw = data.draw
    amounts = draw(st.lists(st.integers(0, 4_000), min_size=1, max_size=len(BUDGETS)))
    world = World(amounts, limiters)
    stored = 0
    for _ in range(draw(st.integers(5, most))):
        step = draw(
            st.sampled_from(["arrive", "arrive", "produce", "produce", "sweep", "end", "ledger"])
        )
        if step == "arrive":
            await world.arrive(draw)
        elif step == "sweep":
            await world.sweep()
        elif step == "ledger":
            stored = draw(st.integers(stored, len(world.closes)))
            await world.hear_ledger(stored)
        elif world.running:
            request = draw(st.sampled_from(world.running))
            if step == "produce":
                world.produce(request, draw(st.integers(0, 400)))
            else:
                await world.end(request, RequestStatus.COMPLETED)
        world.look()
    while world.running:
        await world.end(world.running[0], RequestStatus.COMPLETED)
        world.look()
    world.check()


@settings(max_examples=50, deadline=None)
@given(data=st.data(), workers=st.integers(1, 3))
def test_local_limiters_keep_the_bound(data: st.DataObject, workers: int) -> None:
    clock = SetClock()
    limiters: list[LocalLimiter | RedisLimiter] = [
        LocalLimiter(f"jrn_{n}", share=1 / workers, monotonic_us=clock, wall_us=clock)
        for n in range(workers)
    ]
    asyncio.run(play(data, limiters, 40))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), workers=st.integers(1, 3))
def test_workers_on_one_redis_keep_the_bound(
    valkey_server: Any, data: st.DataObject, workers: int
) -> None:
    async def run() -> None:
        clock = SetClock()
        limiters = [
            RedisLimiter(
                valkey_server.url,
                f"jrn_{n}",
                workers=workers,
                monotonic_us=clock,
                wall_us=clock,
                now_us=clock,
                decision_seconds=20,
            )
            for n in range(workers)
        ]
        await asyncio.gather(*(limiter.start() for limiter in limiters))
        await until_ready(*limiters)
        try:
            await play(data, [*limiters], 40)
        finally:
            await asyncio.gather(*(limiter.close() for limiter in limiters))
            await asyncio.sleep(0)  # for the transports to close

    with redis.Redis.from_url(valkey_server.url) as store:
        store.flushall()
    asyncio.run(run())

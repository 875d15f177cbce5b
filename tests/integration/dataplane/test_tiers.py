"""A route that chooses among tiers, through the real process with two scripted engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from billing.money import format_amount
from billing.reconciliation import verify
from billing.usage.event import ChargeMode, Fallback
from gateway.snapshot.model import Budget, Capabilities, Replica
from tests.factories.billing_rows import (
    add_organization,
    add_price,
    add_price_book,
    rows,
    work_once,
)
from tests.factories.engine_replies import answer as stream_answer
from tests.factories.engine_replies import chat_reply, error_reply, stream, whole
from tests.factories.snapshots import LIMITED_SECRET
from tests.factories.tier_snapshots import (
    EASY,
    HARD,
    PRICES,
    make_policy,
    make_tier_snapshot,
    score_of,
    threshold,
)
from tests.fixtures.data_plane import free_port, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import run_scripted_engine
from tests.fixtures.tiered import Tiers, assistant, fresh, user

NO_NAMES = (7, 1.5, True, [], ["small"], {"name": "small"})  # of a tier: a client's mistake


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiers]:
    with (
        run_scripted_engine() as small,
        run_scripted_engine() as large,
        run_data_plane(
            tmp_path_factory.mktemp("tiers") / "state", small.url, metrics_port=free_port()
        ) as plane,
    ):
        yield Tiers(plane, small, large)


@pytest.fixture
def tiers(servers: Tiers) -> Tiers:
    for engine, name in ((servers.small, "small"), (servers.large, "large")):
        engine.reset()
        engine.reply(whole(chat_reply(name, model=f"e-{name}")))
    servers.publish()
    return servers


def test_a_score_chooses_the_tier_and_the_answer_tells(tiers: Tiers) -> None:
    easy = tiers.ask(user(EASY), headers={"x-forebay-explain": "1"})
    assert easy.json()["choices"][0]["message"]["content"] == "small"
    assert easy.json()["model"] == "auto"
    assert json.loads(tiers.small.requests[0].body)["model"] == "e-small"
    lines = easy.headers
    assert (lines["x-forebay-route"], lines["x-forebay-tier"]) == ("auto", "small")
    assert lines["x-forebay-deployment"] == "small"
    assert lines["x-forebay-score"] == f"{score_of(EASY):.3f}"
    assert lines["x-forebay-tier-reason"] in {"score", "length"}
    assert lines["x-forebay-tier-thresholds"] == f"large>={threshold():g}"
    hard = tiers.ask({"role": "system", "content": "Be brief."}, user(HARD))
    assert hard.headers["x-forebay-tier"] == "large"
    assert "x-forebay-tier-thresholds" not in hard.headers
    close = tiers.plane.close_of(hard)
    assert (close.identity.route_id, close.identity.route) == ("route_large", "large")
    decision = close.identity.tier
    assert decision is not None
    assert (decision.requested_route, decision.requested_route_id) == ("auto", "route_auto")
    assert (decision.tier, decision.charge_mode) == ("large", ChargeMode.AS_SERVED)
    assert decision.score == score_of(HARD)
    assert decision.counterfactual_route_id == "route_large"
    assert close.identity.requested_route == "auto"
    plain = tiers.ask(user(EASY), model="small")
    assert "x-forebay-tier" not in plain.headers
    assert tiers.plane.close_of(plain).identity.tier is None


def test_streams_and_text_parts(tiers: Tiers) -> None:
    tiers.large.reply(stream(*stream_answer(["a", "b"], model="e-large")))
    parts = [{"type": "text", "text": HARD}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    reply = tiers.ask({"role": "user", "content": parts}, stream=True)
    assert reply.headers["x-forebay-tier"] == "large"
    assert reply.headers["x-forebay-score"] == f"{score_of(HARD):.3f}"
    assert '"model":"auto"' in reply.text
    assert "e-large" not in reply.text


def test_a_completion_is_scored_by_its_prompt(tiers: Tiers) -> None:
    for prompt, served in ((HARD, "large"), ([HARD, EASY], "large"), ([1, 2, 3], "small")):
        content = json.dumps({"model": "auto", "prompt": prompt})
        reply = tiers.plane.post(content, path="/v1/completions")
        assert reply.headers["x-forebay-tier"] == served
    assert reply.headers["x-forebay-tier-reason"] == "no_text"
    assert "x-forebay-score" not in reply.headers


def test_a_request_names_its_tier(tiers: Tiers) -> None:
    assert tiers.serve(user(EASY), headers={"x-forebay-tier": "large"}) == ("large", "override")
    assert tiers.serve(user(HARD), metadata={"forebay_tier": "small"}) == ("small", "override")
    named = {"headers": {"x-forebay-tier": "small"}, "metadata": {"forebay_tier": "large"}}
    assert tiers.serve(user(HARD), **named) == ("small", "override")
    assert tiers.serve(user(EASY), metadata={"other": "x"})[0] == "small"
    nothing = {"headers": {"x-forebay-tier": ""}, "metadata": {"forebay_tier": ""}}
    assert tiers.serve(user(fresh(EASY)), **nothing)[0] == "small"  # a client's unset variable
    for wrong, param in (
        ({"headers": {"x-forebay-tier": "huge"}}, "x-forebay-tier"),
        ({"metadata": {"forebay_tier": "huge"}}, "metadata.forebay_tier"),
        *(
            ({"metadata": {"forebay_tier": no_name}}, "metadata.forebay_tier")
            for no_name in NO_NAMES
        ),
    ):
        opened = tiers.plane.opened
        reply = tiers.ask(user(EASY), **wrong)  # type: ignore[arg-type]
        assert reply.status_code == 400
        error = reply.json()["error"]
        assert (error["code"], error["param"]) == ("unknown_tier", param)
        assert error["type"] == "invalid_request_error"
        assert "small, large" in error["message"]
        is_name = "huge" in str(wrong)
        assert ("'huge'" if is_name else "must be a string") in error["message"]
        assert ("no tier" in error["message"]) is is_name
        assert tiers.plane.opened == opened


def test_a_conversation_moves_up_and_not_down(tiers: Tiers) -> None:
    first, hard = user(fresh(EASY)), user(fresh(HARD))
    assert tiers.serve(first)[0] == "small"
    assert tiers.serve(first, assistant(), hard)[0] == "large"
    later = [first, assistant(), hard, assistant(), user("ok continue")]
    assert tiers.serve(*later) == ("large", "sticky")
    # An override holds for its request alone, and the tools that it calls.
    assert tiers.serve(*later, headers={"x-forebay-tier": "small"}) == ("small", "override")
    call = {"role": "assistant", "content": None, "tool_calls": []}
    result = {"role": "tool", "tool_call_id": "1", "content": "7"}
    assert tiers.serve(*later, call, result) == ("small", "tool_loop")
    assert tiers.serve(*later, call, result, assistant(), user("ok")) == ("large", "sticky")
    assert tiers.serve(user(fresh(EASY)))[0] == "small"


def test_a_tool_loop_stays_where_it_is(tiers: Tiers) -> None:
    session = {"x-forebay-session": fresh("s")}
    assert tiers.serve(user(EASY), headers=session)[0] == "small"
    result = {"role": "tool", "tool_call_id": "1", "content": HARD}
    loop = [user(EASY), assistant("calls"), result]
    assert tiers.serve(*loop, headers=session) == ("small", "tool_loop")
    # Where it cannot go on it moves up, and stays there.
    tiers.publish(deployments={"small": {"capabilities": Capabilities(features=("chat",))}})
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert tiers.serve(*loop, headers=session, tools=tools) == ("large", "capability")
    assert tiers.serve(*loop, assistant(), user(EASY), headers=session) == ("large", "sticky")
    session = {"x-forebay-session": fresh("s")}
    assert tiers.serve(user(EASY), headers=session)[0] == "small"
    # The session's name alone keeps it up, whatever is sent of it.
    assert tiers.serve(user(HARD), headers=session)[0] == "large"
    assert tiers.serve(user(EASY), headers=session) == ("large", "sticky")
    # A user has many conversations: each is on its own tier.
    hard, easy = user(fresh(HARD)), user(fresh(EASY))
    assert tiers.serve(hard, user="u-1")[0] == "large"
    assert tiers.serve(easy, user="u-1")[0] == "small"
    later = (assistant(), user("x" * 4000), assistant(), user("ok"))  # no room for the first
    assert tiers.serve(hard, *later, user="u-1") == ("large", "sticky")


def test_without_a_memory_the_body_decides(tiers: Tiers) -> None:
    """Another worker, or one that has restarted, knows nothing of the conversation."""
    hard, ok = user(fresh(HARD)), user("ok continue")
    assert tiers.serve(user(fresh(EASY)), assistant(), hard, assistant(), ok)[0] == "large"
    loop = [user(fresh(HARD)), assistant("calls"), {"role": "tool", "content": "7"}]
    assert tiers.serve(*loop)[0] == "large"
    assert tiers.serve(user(fresh(EASY)), assistant(), ok)[0] == "small"


def test_what_does_not_fit_goes_up(tiers: Tiers) -> None:
    """Case 59 of the public bugs: a long conversation that ends in "ok continue"."""
    short = {"small": {"capabilities": Capabilities(context_tokens=16_385)}}
    long = {"large": {"capabilities": Capabilities(context_tokens=131_072)}}
    tiers.publish(make_policy(thresholds=(2.0,)), deployments={**short, **long})
    history = [user(fresh(EASY)), assistant("word " * 17_000), user("ok continue")]
    reply = tiers.ask(*history)
    assert (reply.headers["x-forebay-tier"], reply.headers["x-forebay-tier-reason"]) == (
        "large",
        "context",
    )
    assert reply.headers["x-forebay-charge"] == "0.00013"  # at the price of what served
    assert tiers.serve(user(fresh(EASY)), max_tokens=16_384) == ("large", "context")
    tools = [{"type": "function", "function": {"name": "f", "description": "word " * 17_000}}]
    assert tiers.serve(user(fresh(EASY)), tools=tools) == ("large", "context")
    assert tiers.serve(user(fresh(EASY)), max_tokens=100)[0] == "small"
    too_long = "This model's maximum context length is 131072 tokens."
    tiers.large.reply(error_reply(too_long, 400))
    asked = len(tiers.large.requests), len(tiers.small.requests)
    reply = tiers.ask(user(fresh(EASY)), assistant("word " * 200_000), user("ok"))
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert (len(tiers.large.requests), len(tiers.small.requests)) == (asked[0] + 1, asked[1])


def test_what_cannot_be_done_goes_up(tiers: Tiers) -> None:
    plain = {"small": {"capabilities": Capabilities(features=("chat",))}}
    tiers.publish(deployments=plain)
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert tiers.serve(user(EASY), tools=tools) == ("large", "capability")
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
    assert tiers.serve(user(EASY), response_format=schema) == ("large", "capability")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    seen = {"role": "user", "content": [{"type": "text", "text": EASY}, image]}
    assert tiers.serve(seen) == ("large", "capability")
    tiers.publish(deployments={"small": {"capabilities": Capabilities(features=("chat", "tools"))}})
    asking = {"type": "object", "properties": {"image_url": {"type": "string"}}}  # is no image
    named = [{"type": "function", "function": {"name": "f", "parameters": asking}}]
    assert tiers.serve(user(fresh(EASY)), tools=named)[0] == "small"
    tiers.publish(deployments=plain)
    assert tiers.serve(user(EASY), tools=tools, headers={"x-forebay-tier": "small"}) == (
        "large",
        "capability",
    )
    assert tiers.serve(user(fresh(EASY)))[0] == "small"


def test_a_tier_that_is_not_there_is_passed_over(tiers: Tiers) -> None:
    talk = user(fresh(EASY))
    tiers.publish(deployments={"small": {"replicas": ()}})
    assert tiers.serve(talk) == ("large", "health")
    drained = (Replica("rep_drained", tiers.large.url, is_draining=True),)
    tiers.publish(deployments={"large": {"replicas": drained}})
    assert tiers.serve(user(HARD)) == ("small", "health")
    # An outage lasts no longer than it lasts: the conversation is where its score says.
    assert tiers.serve(talk, assistant(), user("ok"))[0] == "small"
    tiers.publish(deployments={name: {"replicas": ()} for name in ("small", "large")})
    reply = tiers.ask(user(EASY))
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "no_replica")


def test_a_tier_that_fails_falls_back_to_the_others(tiers: Tiers) -> None:
    tiers.publish(fallbacks=("spare",))
    tiers.small.reply(error_reply("broken", 500))
    talk = user(fresh(EASY))
    reply = tiers.ask(talk)
    assert reply.json()["choices"][0]["message"]["content"] == "large"
    assert reply.headers["x-forebay-tier"] == "large"
    assert reply.headers["x-forebay-fallback"] == "engine_failed"
    close = tiers.plane.close_of(reply)
    assert close.identity.fallback == Fallback("auto", "engine_failed")
    assert close.identity.tier is not None
    assert (close.identity.tier.tier, close.identity.route) == ("large", "large")
    # Tools stay where it fell back to; the next turn begins where its score says.
    tiers.small.reply(whole(chat_reply("small", model="e-small")))
    call, result = assistant("calls"), {"role": "tool", "tool_call_id": "1", "content": "7"}
    assert tiers.serve(talk, call, result) == ("large", "tool_loop")
    assert tiers.serve(talk, call, result, assistant(), user("ok"))[0] == "small"
    tiers.small.reply(error_reply("broken", 500))
    dead = {"large": {"replicas": (Replica("rep_dead_tier", tiers.plane.dead_url),)}}
    tiers.publish(deployments=dead, fallbacks=("spare",))
    reply = tiers.ask(user(fresh(EASY)))
    assert (reply.headers["x-forebay-route"], reply.headers["x-forebay-deployment"]) == (
        "auto",
        "spare",
    )
    assert "x-forebay-tier" not in reply.headers
    assert tiers.plane.close_of(reply).identity.route == "spare"


def test_a_key_gets_only_tiers_that_it_may_use(tiers: Tiers) -> None:
    snapshot = make_tier_snapshot(
        tiers.plane.version + 1,
        small_url=tiers.small.url,
        large_url=tiers.large.url,
        dead_url=tiers.plane.dead_url,
    )
    key = next(one for one in snapshot.keys.values() if one.id == "key_limited")
    for allowed in (("auto", "small"), ("auto",)):
        changed = msgspec.structs.replace(key, allowed_routes=allowed)
        keys = {
            digest: changed if one.id == key.id else one for digest, one in snapshot.keys.items()
        }
        tiers.plane.publish(
            msgspec.structs.replace(snapshot, version=tiers.plane.version + 1, keys=keys)
        )
        tiers.plane.wait_published()
        reply = tiers.ask(user(HARD), secret=LIMITED_SECRET)
        assert reply.status_code == 200
        if "small" in allowed:
            assert reply.headers["x-forebay-tier-reason"] == "not_allowed"
            assert reply.headers["x-forebay-tier"] == "small"
        else:  # its own deployment serves, as if it had no tiers
            assert reply.headers["x-forebay-deployment"] == "auto"
            assert tiers.plane.close_of(reply).identity.tier is None


def test_scoring_never_makes_a_request_fail(tiers: Tiers) -> None:
    tiers.publish(make_policy(classifier="not-there", default_tier="large"))
    assert tiers.serve(user(fresh(EASY))) == ("large", "scoring_failed")
    tiers.publish(make_policy(budget_ms=0.000001))
    assert tiers.serve(user(fresh(HARD))) == ("small", "scoring_slow")
    tiers.publish(make_policy(tiers=make_policy().tiers[:1] * 2, thresholds=()))
    assert tiers.ask(user(EASY)).headers["x-forebay-deployment"] == "auto"
    tiers.publish()
    odd: list[Any] = [None, [], [{"type": "text"}], [{"text": 7}], {"text": EASY}, 5]
    for content in odd:
        assert tiers.serve({"role": "user", "content": content}) == ("small", "no_text")
    assert tiers.serve({"role": "user"}, metadata=7) == ("small", "no_text")
    assert tiers.serve() == ("small", "no_text")


def test_a_project_has_its_own_thresholds(tiers: Tiers) -> None:
    tiers.publish(make_policy(project_thresholds={"proj_1": (-2.0,), "proj_2": (2.0,)}))
    reply = tiers.ask(user(EASY), headers={"x-forebay-explain": "1"})
    assert reply.headers["x-forebay-tier"] == "large"
    assert reply.headers["x-forebay-tier-thresholds"] == "large>=-2"


@pytest.mark.parametrize(
    ("changes", "easy", "hard"),
    [
        ({"charge": "as_served"}, "0.000013", "0.00013"),
        ({"charge": "as_requested"}, "0.000052", "0.000052"),
        # 13 tokens: 13 millionths, and three quarters of 117 millionths more.
        ({"charge": "saving_shared", "saving_share": "0.25"}, "0.00010075", "0.00013"),
    ],
)
def test_the_answer_tells_what_will_be_charged(
    tiers: Tiers, changes: dict[str, str], easy: str, hard: str
) -> None:
    tiers.publish(make_policy(**changes))
    replies = [tiers.ask(user(fresh(text))) for text in (EASY, HARD)]
    assert [reply.headers["x-forebay-charge"] for reply in replies] == [easy, hard]
    decision = tiers.plane.close_of(replies[0]).identity.tier
    assert decision is not None
    assert decision.charge_mode == changes["charge"]
    assert decision.saving_share == changes.get("saving_share", "1")


def test_money_is_held_at_the_price_that_will_be_charged(tiers: Tiers) -> None:
    """A request that its budget cannot carry as it is charged is refused before it is served."""

    def budget(left: str) -> tuple[Budget, ...]:
        name = f"bud_{tiers.plane.version}"
        amount = str(Decimal(left) + 9)
        rule = Budget(name, name, "project", "proj_1", "lifetime", amount, "EUR")
        return (msgspec.structs.replace(rule, spent="9"),)

    # About 300 tokens are reserved for an easy prompt: 0.0003 at the small tier's price.
    tiers.publish(budgets=budget("0.001"))
    assert tiers.serve(user(fresh(EASY)))[0] == "small"
    for changes in ({"charge": "as_requested"}, {"charge": "saving_shared", "saving_share": "0.5"}):
        tiers.publish(make_policy(**changes), budgets=budget("0.001"))
        assert tiers.ask(user(fresh(EASY))).status_code == 402
    tiers.publish(make_policy(), budgets=budget("5"), unpriced=("small",))
    assert tiers.serve(user(fresh(EASY))) == ("large", "unpriced")
    tiers.publish(make_policy(), budgets=budget("5"), unpriced=("small", "large"))
    assert tiers.ask(user(fresh(EASY))).json()["error"]["code"] == "route_unpriced"


def test_choices_are_counted(tiers: Tiers) -> None:
    tiers.serve(user(fresh(EASY)), headers={"x-forebay-tier": "large"})
    line = 'forebay_tier_choices_total{route="auto",tier="large",reason="override"}'
    url = f"http://127.0.0.1:{tiers.plane.options['metrics_port']}/metrics"
    wait_for(lambda: line in tiers.plane.client.get(url).text, "the choice is counted")


def test_the_worker_charges_what_the_answer_told(tiers: Tiers, database_url: str) -> None:
    add_price_book(database_url, "pb_1")
    add_organization(database_url, "org_1", "pb_1")
    for name, price in PRICES.items():
        add_price(database_url, price, price, route_id=f"route_{name}", price_book_id="pb_1")
    told: dict[str, str] = {}

    def ask(text: str) -> None:
        reply = tiers.ask(user(fresh(text)))
        assert reply.status_code == 200
        told[reply.headers["x-request-id"]] = reply.headers["x-forebay-charge"]

    for changes in (
        {"charge": "as_served"},
        {"charge": "as_requested"},
        {"charge": "saving_shared", "saving_share": "0.3333"},
    ):
        tiers.publish(make_policy(**changes))
        ask(HARD)
        for reply in (error_reply("broken", 500), whole(chat_reply("small", model="e-small"))):
            tiers.small.reply(reply)
            ask(EASY)
    work_once(database_url, tiers.plane.journal_dir)
    stored = rows(
        database_url,
        "SELECT request_id, charge, route FROM usage_events WHERE request_id = ANY(%s)",
        list(told),
    )
    assert {one[0]: format_amount(one[1]) for one in stored} == told
    assert sorted(one[2] for one in stored) == ["large"] * 6 + ["small"] * 3
    assert verify(database_url).is_clean

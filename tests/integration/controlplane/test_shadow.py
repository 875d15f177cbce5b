"""Shadow policies, what own traffic says of tiers, and what the control plane does about it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from billing.clock import utc_now
from billing.ids import new_id
from gateway.controlplane.shadow_api.watch_shadow import ShadowWatch
from gateway.snapshot import model
from routing.complexity.predictor import SHIPPED
from tests.factories.billing_rows import transaction
from tests.fixtures.control_api import ControlApi, started
from tests.integration.controlplane.test_budget_alerts import Receiver
from tests.integration.controlplane.test_tiers import make_routes, policy_of
from tests.unit.dataplane.test_classifier_registry import make_weights

POLICY: dict[str, Any] = {"share": 0.05, "daily_budget": "2.50", "currency": "EUR"}


@pytest.fixture
async def api(module_database_url: str, tmp_path: Path) -> AsyncIterator[ControlApi]:
    async with started(module_database_url, state_dir=tmp_path / "state") as api:
        yield api


async def shadowed(api: ControlApi, **changes: Any) -> dict[str, Any]:
    """Return a new route with two tiers that is shadowed; the first of its kind has 0.25."""
    auto, small, large = await make_routes(api)
    for body in ({"tiers": policy_of(small, large)}, {"shadow": {**POLICY, **changes}}):
        answer = await api.http.patch(f"/routes/{auto['id']}", json=body)
        assert answer.status_code == 200, answer.text
    return dict(answer.json())


def add_scores(
    database_url: str,
    route: dict[str, Any],
    count: int,
    *,
    seed: int = 1,
    scored_at: datetime | None = None,
    scores: tuple[float, float] = (-1, 1),
) -> None:
    """Add samples of which the small tier fails those with a score above 0.5."""
    drawn = random.Random(seed)
    scored_at = scored_at or datetime.now(UTC)
    found = [drawn.uniform(*scores) for _ in range(count)]
    with transaction(database_url) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO shadow_scores VALUES ('proj_1', %s, 'org_1', %s, %s, %s, 'small', 'large',"
            " 'agreement', %s, 1, %s, 0.1, 1, 'EUR', %s)",
            [
                (
                    new_id("req"),
                    route["id"],
                    route["name"],
                    "large" if score >= route["tiers"]["thresholds"][0] else "small",
                    0.0 if score > 0.5 else 1.0,
                    score,
                    scored_at,
                )
                for score in found
            ],
        )


def make_watch(api: ControlApi, webhook_url: str | None = None) -> ShadowWatch:
    plane = api.control_plane
    return ShadowWatch(
        plane.database,
        plane.publisher.publish_soon,
        clock=utc_now,
        poll_seconds=60.0,
        webhook_url=webhook_url,
    )


async def set_thresholds(api: ControlApi, route: dict[str, Any], *thresholds: float) -> None:
    tiers = {**route["tiers"], "thresholds": list(thresholds)}
    tiers = {name: value for name, value in tiers.items() if value is not None}
    answer = await api.http.patch(f"/routes/{route['id']}", json={"tiers": tiers})
    assert answer.status_code == 200, answer.text
    route["tiers"] = answer.json()["tiers"]


async def made_by(api: ControlApi, route: dict[str, Any]) -> list[tuple[str, list[float] | None]]:
    found = (await api.get("/shadow/versions", route=route["name"]))["data"]
    return [(one["made_by"], one["thresholds"]) for one in found]


async def test_a_policy_is_set_published_and_goes_with_the_tiers(api: ControlApi) -> None:
    auto, judge, other = await make_routes(api)
    path = f"/routes/{auto['id']}"
    error = await api.refuse("PATCH", path, 400, json={"shadow": POLICY})
    assert error["param"] == "shadow"  # it has no tiers
    both = {"tiers": policy_of(judge, other), "shadow": {**POLICY, "quality_floor": 0.9}}
    answer = await api.http.patch(path, json=both)
    assert answer.status_code == 200, answer.text
    kept = answer.json()["shadow"]
    assert (kept["daily_budget"], kept["target_quality"]) == ("2.5", 0.95)
    assert (kept["rolls_back"], kept["moves_threshold"], kept["min_samples"]) == (True, False, 200)
    assert api.snapshot().routes[auto["name"]].shadow == model.ShadowPolicy(0.05, "2.5", "EUR")
    judged = {**POLICY, "method": "judge", "judge_route": other["name"]}
    assert (await api.http.patch(path, json={"shadow": judged})).status_code == 200
    found = api.snapshot().routes[auto["name"]].shadow
    assert found is not None
    assert (found.method, found.judge_route) == ("judge", other["name"])
    wrong: list[dict[str, Any]] = [
        {"share": 0},
        {"daily_budget": 2.5},
        {"currency": "euro"},
        {"check": "a"},
        {"method": "exact", "check": "(?=a)"},
        {"method": "judge"},
        {"method": "judge", "judge_route": auto["name"]},
        {"method": "judge", "judge_route": "nobody"},
        {"rolls_back": True},
        {"target_quality": 0.9, "target_large_share": 0.5},
    ]
    for changes in wrong:
        await api.refuse("PATCH", path, 400, json={"shadow": {**POLICY, **changes}})
    await api.http.patch(path, json={"tiers": None})
    assert (await api.get(path))["shadow"] is None
    assert api.snapshot().routes[auto["name"]].shadow is None
    await api.refuse("GET", f"/shadow/curve?route={auto['name']}", 409)


async def test_own_traffic_proposes_a_threshold(api: ControlApi, module_database_url: str) -> None:
    route = await shadowed(api, target_quality=0.98, min_samples=100)
    add_scores(module_database_url, route, 60)
    curve = await api.get("/shadow/curve", route=route["name"])
    assert curve["pairs"][0]["proposal"] is None  # too few
    await api.refuse("POST", "/shadow/apply", 409, json={"route": route["name"]})
    add_scores(module_database_url, route, 300, seed=2)
    curve = await api.get("/shadow/curve", route=route["id"])
    (pair,) = curve["pairs"]
    assert (pair["samples"], pair["threshold"]) == (360, 0.25)
    assert pair["curve"][0]["large_share"] == 1
    assert pair["curve"][0]["quality"]["value"] == 1
    assert 0.7 < pair["curve"][-1]["quality"]["value"] < 0.8
    assert pair["curve"][-1]["relative_cost"] == pytest.approx(0.1)
    proposed = pair["proposal"]["threshold"]
    assert 0.4 < proposed < 0.6
    (status,) = (await api.get("/shadow", route=route["name"]))["data"]
    assert status["proposed_thresholds"] == [proposed]
    assert (status["samples"], status["is_below_floor"], status["costs"]) == (360, False, [])
    assert (status["spent_today"], status["pairs"][0]["curve"]) == ("0", None)
    (status,) = (await api.get("/shadow", route=route["name"], curves=True))["data"]
    assert status["pairs"] == curve["pairs"]
    assert 0.25 in [point["threshold"] for point in pair["curve"]]  # what is in effect
    assert status["earlier_thresholds"] is None
    other = (await api.make_key())["project_id"]
    curve = await api.get("/shadow/curve", route=route["name"], project_id=other)
    assert curve["pairs"][0]["curve"] == []
    await api.refuse("GET", f"/shadow/curve?route={route['id']}&project_id=no", 404)
    seen: dict[str, Any] = {"route": route["name"], "thresholds": [0.3]}
    error = await api.refuse("POST", "/shadow/apply", 409, json=seen)
    assert error["param"] == "thresholds"  # it is another one by now
    seen["thresholds"] = [proposed]
    changed = await api.post("/shadow/apply", status=200, **seen)
    assert changed["tiers"]["thresholds"] == [proposed]
    (status,) = (await api.get("/shadow", route=route["name"]))["data"]
    assert (status["version"], status["earlier_thresholds"]) == (2, [0.25])
    tiers = api.snapshot().routes[route["name"]].tiers
    assert tiers is not None
    assert tiers.thresholds == (proposed,)
    seen = {"route": route["name"], "version": 1}
    assert (await api.refuse("POST", "/shadow/rollback", 409, json=seen))["param"] == "version"
    back = await api.post("/shadow/rollback", status=200, route=route["name"], version=2)
    assert back["tiers"]["thresholds"] == [0.25]
    assert await made_by(api, route) == [
        ("admin", [0.25]),
        ("admin", [proposed]),
        ("admin", [0.25]),
    ]
    await api.refuse("POST", "/shadow/rollback", 409, json={"route": route["name"]})


async def test_below_the_floor_the_last_change_is_undone(
    api: ControlApi, module_database_url: str
) -> None:
    route = await shadowed(api, quality_floor=0.9, min_samples=100, moves_threshold=True)
    await set_thresholds(api, route, 0.9)
    add_scores(module_database_url, route, 150)
    receiver = Receiver()
    watch = make_watch(api, receiver.url)
    try:
        await watch.look()
        assert (await api.get(f"/routes/{route['id']}"))["tiers"]["thresholds"] == [0.25]
        (told,) = [body for _, body in receiver.taken if body["route"] == route["name"]]
        assert (told["kind"], told["thresholds"]) == ("quality_below_floor", [0.9])
        assert told["quality"] < told["quality_floor"] == 0.9
        versions = (await api.get("/shadow/versions", route=route["name"]))["data"]
        assert versions[0]["made_by"] == "rollback"
        assert versions[0]["figures"]["left_thresholds"] == [0.9]
        assert versions[0]["figures"]["samples"] == 150
        # Judged anew from there: by nothing yet, so the alarm is over, and nothing moves.
        await watch.look()
        (status,) = (await api.get("/shadow", route=route["name"]))["data"]
        assert (status["samples"], status["is_below_floor"], status["alarms"]) == (0, False, [])
        assert (await made_by(api, route))[0] == ("rollback", [0.25])
        route["tiers"]["thresholds"] = [0.25]
        add_scores(module_database_url, route, 150, seed=2)
        await watch.look()
        moved = await made_by(api, route)
        assert moved[0][0] == "proposal"
        assert moved[1:] == [("rollback", [0.25]), ("admin", [0.9]), ("admin", [0.25])]
    finally:
        await watch.close()
        receiver.stop()


async def test_a_policy_without_leave_changes_nothing(
    api: ControlApi, module_database_url: str
) -> None:
    route = await shadowed(api, quality_floor=0.9, min_samples=100, rolls_back=False)
    await set_thresholds(api, route, 0.9)
    add_scores(module_database_url, route, 150)
    watch = make_watch(api)
    await watch.look()
    await watch.close()
    (status,) = (await api.get("/shadow", route=route["name"]))["data"]
    assert status["thresholds"] == [0.9]
    assert [alarm["kind"] for alarm in status["alarms"]] == ["quality_below_floor"]


async def test_feedback_counts_for_the_tier_that_served(
    api: ControlApi, module_database_url: str
) -> None:
    route = await shadowed(api, min_samples=20)
    now = datetime.now(UTC)
    with transaction(module_database_url) as connection:
        for number in range(4):
            request = new_id("req")
            connection.execute(
                "INSERT INTO usage_events (event_id, started_at, finished_at, request_id,"
                " organization_id, project_id, api_key_id, route_id, route, deployment_id,"
                " endpoint, is_stream, status, http_status, attempts, currency, journal_id,"
                " requested_route, requested_route_id, tier, tier_reason, tier_score, charge_mode,"
                " counterfactual_route_id) VALUES (%s, %s, %s, %s, 'org_1', 'proj_1', 'key', 'r',"
                " 'r', 'd', 'chat.completions', false, 'completed', 200, 1, 'EUR', 'jrn', %s, %s,"
                " 'small', 'score', 0.1, 'as_served', 'r')",
                ("evt_" + request[4:], now, now, request, route["name"], route["id"]),
            )
            connection.execute(
                "INSERT INTO feedback VALUES ('proj_1', %s, 'org_1', 'key', %s, NULL, %s, %s)",
                (request, number % 2, now, now),
            )
    add_scores(module_database_url, route, 4, scores=(-1, -0.9))
    with transaction(module_database_url) as connection:
        connection.execute(
            "INSERT INTO feedback SELECT project_id, request_id, 'org_1', 'key', 0, NULL, %s, %s"
            " FROM shadow_scores WHERE requested_route_id = %s",
            (now, now, route["id"]),
        )
    (status,) = (await api.get("/shadow", route=route["name"]))["data"]
    assert (status["samples"], status["quality"]["value"]) == (8, 0.25)  # not 0.75: they said 0
    assert (status["pairs"][0]["samples"], status["pairs"][0]["feedback"]) == (4, 4)
    # By another method from now on: what agreed in words says nothing of it.
    judged = {**POLICY, "method": "exact"}
    await api.http.patch(f"/routes/{route['id']}", json={"shadow": judged})
    (status,) = (await api.get("/shadow", route=route["name"]))["data"]
    assert (status["samples"], status["pairs"][0]["samples"]) == (4, 0)


async def test_other_prompts_are_an_alarm(api: ControlApi, module_database_url: str) -> None:
    route = await shadowed(api, min_samples=20, window_hours=1)
    now = datetime.now(UTC)
    before = now - timedelta(minutes=90)
    add_scores(module_database_url, route, 40, scored_at=before, scores=(-0.8, -0.2))
    add_scores(module_database_url, route, 40, scored_at=now, scores=(-0.7, 0.2))
    watch = make_watch(api)
    await watch.look()
    await watch.close()
    (status,) = (await api.get("/shadow", route=route["name"]))["data"]
    assert status["is_drifting"] is True
    assert status["score_drift"] > 0.2
    assert [alarm["kind"] for alarm in status["alarms"]] == ["score_drift"]
    assert await made_by(api, route) == [("admin", [0.25])]  # told, and nothing done


async def upload(api: ControlApi, name: str, number: int) -> None:
    path = f"/classifiers/{name}/versions"
    answer = await api.http.post(path, content=make_weights(number)[1])
    assert answer.status_code == 201, answer.text


async def test_an_upload_under_a_shipped_name_goes_back_to_what_is_shipped(
    api: ControlApi, module_database_url: str
) -> None:
    route = await shadowed(api, quality_floor=0.9, min_samples=50)
    route["tiers"]["classifier"] = SHIPPED.stem
    await set_thresholds(api, route, 0.9)
    await upload(api, SHIPPED.stem, 1)
    assert api.snapshot().classifiers[SHIPPED.stem].version == 1
    add_scores(module_database_url, route, 80)
    watch = make_watch(api)
    await watch.look()
    await watch.close()
    assert SHIPPED.stem not in api.snapshot().classifiers
    assert (await made_by(api, route))[0] == ("weights_rollback", [0.9])


async def test_weights_that_came_last_go_back_first(
    api: ControlApi, module_database_url: str
) -> None:
    await upload(api, "shadowed", 1)
    route = await shadowed(api, quality_floor=0.9, min_samples=50)
    route["tiers"]["classifier"] = "shadowed"
    await set_thresholds(api, route, 0.3)
    await set_thresholds(api, route, 0.9)
    await upload(api, "shadowed", 2)
    add_scores(module_database_url, route, 80)
    watch = make_watch(api)
    await watch.look()
    assert api.snapshot().classifiers["shadowed"].version == 1
    assert (await made_by(api, route))[0] == ("weights_rollback", [0.9])
    add_scores(module_database_url, route, 80, seed=2)
    await watch.look()
    await watch.close()
    assert api.snapshot().classifiers["shadowed"].version == 1
    assert (await made_by(api, route))[0] == ("rollback", [0.3])


async def test_with_another_classifier_all_begins_anew_and_goes_back_together(
    api: ControlApi, module_database_url: str
) -> None:
    """The threshold before means nothing by the new classifier's scores, nor do scores of before."""
    await upload(api, "other", 5)
    route = await shadowed(api, quality_floor=0.9, min_samples=50, window_hours=1)
    add_scores(module_database_url, route, 60, scores=(-0.8, -0.2))
    (status,) = (await api.get("/shadow", route=route["name"]))["data"]
    assert status["pairs"][0]["samples"] == 60
    route["tiers"]["classifier"] = "other"
    await set_thresholds(api, route, 0.9)
    add_scores(module_database_url, route, 60, scores=(0.6, 0.9))
    (status,) = (await api.get("/shadow", route=route["name"]))["data"]
    assert (status["pairs"][0]["samples"], status["score_drift"]) == (60, None)
    watch = make_watch(api)
    await watch.look()
    await watch.close()
    tiers = (await api.get(f"/routes/{route['id']}"))["tiers"]
    assert (tiers["classifier"], tiers["thresholds"]) == (None, [0.25])
    assert (await made_by(api, route))[0] == ("rollback", [0.25])


async def test_new_weights_are_no_drift(api: ControlApi, module_database_url: str) -> None:
    await upload(api, "drifting", 6)
    route = await shadowed(api, min_samples=20, window_hours=1)
    route["tiers"]["classifier"] = "drifting"
    await set_thresholds(api, route, 0.9)
    add_scores(module_database_url, route, 40, scores=(-0.8, -0.2))
    await upload(api, "drifting", 7)
    add_scores(module_database_url, route, 40, scores=(0.2, 0.8))
    (status,) = (await api.get("/shadow", route=route["name"]))["data"]
    assert (status["pairs"][0]["samples"], status["score_drift"]) == (40, None)

"""What ``forebay report serving`` says below its table."""

from __future__ import annotations

from typing import Any

from gateway.cli.serving import Grouping, list_notes, show_rate


def row(label: str = "", **more: Any) -> dict[str, Any]:
    return {
        "label": label,
        "requests": 10,
        "measured_requests": 10,
        "unjudged_requests": 0,
        "unpriced_requests": 0,
        **more,
    }


def notes(rows: list[dict[str, Any]], total: dict[str, Any], **more: Any) -> str:
    asked = {"by": Grouping.ROUTE, "cost_per_hour": None} | more
    return "\n".join(list_notes({"data": rows, "total": total}, **asked))


def test_nothing_is_said_where_the_table_tells_all() -> None:
    assert notes([row("a"), row("b")], row()) == ""
    assert notes([row("a")], row(), cost_per_hour="4") == ""
    hours = [row("1"), row("2")]
    assert notes(hours, row(), by=Grouping.HOUR, cost_per_hour="4") == ""


def test_a_cost_of_several_rows_is_of_the_total() -> None:
    said = notes([row("a"), row("b")], row(), cost_per_hour="4")
    assert said.startswith("The cost is of all routes together")
    assert "give --route" in said
    by_deployment = {"by": Grouping.DEPLOYMENT, "cost_per_hour": "4"}
    assert "give --deployment" in notes([row("a"), row("b")], row(), **by_deployment)


def test_what_has_no_price_is_counted_by_row_and_of_hours_at_once() -> None:
    rows = [row("a", unpriced_requests=3), row("b")]
    total = row(unpriced_requests=3)
    assert notes(rows, total).startswith("a: 3 request(s) have no price;")
    assert notes(rows, total, by=Grouping.HOUR).startswith("All: 3 request(s) have no price;")


def test_what_limits_cannot_judge_and_a_sample_are_said() -> None:
    said = notes([row("a")], row(unjudged_requests=4, measured_requests=5))
    assert "of a sample of 5 requests" in said
    assert "4 completed request(s) were not streamed" in said


def test_rates_of_few_requests_are_no_zero() -> None:
    told = ("0", "0.0000881", "0.24321", "0.9999", "1", "1234.567")
    shown = ["0.00", "0.0000881", "0.243", "1.000", "1.00", "1234.57"]
    assert [show_rate(rate) for rate in told] == shown

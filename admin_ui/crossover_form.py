"""The costs page's form: from its fields to the question that the control API is asked.

Figures stay the text that was entered; here is only looked whether they are figures at all, so that
the page can name the field. What they mean, and whether they fit together, the control API decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Any

_LONGEST = 100
_LONGEST_PRICES = 8_000
PERCENTILES = ("p50", "p95", "p99")
SERVERLESS = ("charged", "book", "list")
CAPACITIES = ("rate", "rates", "stored")
# Field, its name for people, the question's own name.
_AMOUNTS = (
    ("gpu_price", "GPU price", "gpu_price_per_hour"),
    ("committed_price", "Committed price", "committed_price_per_hour"),
    ("max_utilization", "Highest use", "max_utilization"),
    ("growth", "Growth", "growth"),
)
_COUNTS = (
    ("gpus", "GPUs of a replica", "gpus_per_replica"),
    ("spare", "Spare replicas", "spare_replicas"),
    ("max_replicas", "Most replicas", "max_replicas"),
    ("commitment_months", "Commitment", "commitment_months"),
    ("cold_start", "Cold start", "cold_start_seconds"),
    ("scale_down_delay", "Scale-down delay", "scale_down_delay_seconds"),
)
_RATES = {
    "rate": (("tokens_per_second", "Tokens a second"),),
    "rates": (
        ("input_rate", "Input tokens a second"),
        ("output_rate", "Output tokens a second"),
    ),
}
_RATE_NAMES = {
    "tokens_per_second": "tokens_per_second",
    "input_rate": "input_tokens_per_second",
    "output_rate": "output_tokens_per_second",
}
TARGETS = (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("e2e_ms", "E2E"))
_DEFAULTS = {
    "gpus": "1",
    "spare": "1",
    "max_utilization": "0.8",
    "growth": "1",
    "scale_down_delay": "600",
    "percentile": "p95",
    "serverless": "charged",
    "capacity": "rate",
}
_TEXTS = ("route", "gpu", "price_book", "profile")


class FormProblemError(ValueError):
    """A field does not hold what it should; the text says which, fit for a page."""


@dataclass(frozen=True)
class CrossoverForm:
    """The fields as they were entered, with the usual values where nothing was."""

    fields: Mapping[str, str]

    @property
    def is_asked(self) -> bool:
        """Say whether a report is wanted: it needs a GPU price at least."""
        return bool(self.fields["gpu_price"])

    @property
    def max_utilization(self) -> Decimal:
        """Return the highest use of a replica that was entered, or the usual one."""
        if not self.fields["max_utilization"]:
            return Decimal(_DEFAULTS["max_utilization"])
        return Decimal(_number(self.fields, "max_utilization", "Highest use"))

    def list_targets(self) -> dict[str, str]:
        """Return the latency targets that were entered. Raises :class:`FormProblemError`."""
        return {
            name: _number(self.fields, name, label) for name, label in TARGETS if self.fields[name]
        }

    def make_question(self) -> dict[str, Any]:
        """Return the question, but for its span. Raises :class:`FormProblemError`."""
        question: dict[str, Any] = {
            name: _number(self.fields, field, label)
            for field, label, name in _AMOUNTS
            if self.fields[field]
        }
        question |= {
            name: _count(self.fields, field, label)
            for field, label, name in _COUNTS
            if self.fields[field]
        }
        for field in ("route", "gpu"):
            if self.fields[field]:
                question[field] = self.fields[field]
        question["capacity"] = self._make_capacity()
        targets = self.list_targets()
        if targets:
            question["latency_target"] = {**targets, "percentile": self.fields["percentile"]}
        return question | self._make_prices()

    def _make_capacity(self) -> dict[str, str]:
        kind = self.fields["capacity"]
        if kind == "stored":
            if not self.fields["profile"]:
                raise FormProblemError("Choose a stored capacity profile.")
            return {"stored_profile": self.fields["profile"]}
        capacity = {}
        for field, label in _RATES[kind]:
            if not self.fields[field]:
                raise FormProblemError(f"{label} of one replica: how many are they?")
            capacity[_RATE_NAMES[field]] = _number(self.fields, field, label)
        return capacity

    def _make_prices(self) -> dict[str, Any]:
        kind = self.fields["serverless"]
        if kind == "book":
            if not self.fields["price_book"]:
                raise FormProblemError("Choose a price book.")
            return {"price_book": self.fields["price_book"]}
        if kind == "list":
            prices = [_price(line) for line in self.fields["prices"].splitlines() if line.strip()]
            if not prices:
                raise FormProblemError("Enter at least one price, like acme=0.12/0.40.")
            currency = self.fields["currency"].strip().upper() or "USD"
            return {"prices": prices, "currency": currency}
        return {}


def read_crossover_form(query: Mapping[str, str]) -> CrossoverForm:
    """Return the form as a page's address has it; what it does not know is left out."""
    names = [*_DEFAULTS, *_TEXTS, "currency", *(name for name, _ in TARGETS)]
    names += [field for field, _, _ in (*_AMOUNTS, *_COUNTS)]
    names += [field for rates in _RATES.values() for field, _ in rates]
    is_fresh = "gpu_price" not in query
    fields = {}
    for name in names:
        usual = _DEFAULTS.get(name, "")
        fields[name] = query.get(name, usual if is_fresh else "").strip()[:_LONGEST]
        fields[name] = fields[name] or (usual if name in _CHOSEN else fields[name])
    fields["prices"] = query.get("prices", "")[:_LONGEST_PRICES]
    for name, known in _CHOSEN.items():
        if fields[name] not in known:
            fields[name] = _DEFAULTS[name]
    return CrossoverForm(fields)


_CHOSEN = {"percentile": PERCENTILES, "serverless": SERVERLESS, "capacity": CAPACITIES}


def _number(fields: Mapping[str, str], name: str, label: str) -> str:
    text = fields[name].replace(",", "")
    try:
        is_number = Decimal(text).is_finite() and Decimal(text) >= 0 and text.isascii()
    except DecimalException:
        is_number = False
    if not is_number:
        raise FormProblemError(f"{label}: write a number from 0 up, like 2.5.")
    return text


def _count(fields: Mapping[str, str], name: str, label: str) -> int:
    text = fields[name].replace(",", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise FormProblemError(f"{label}: write a whole number, like 2.")
    return int(text)


def _price(line: str) -> dict[str, str]:
    name, found, figures = line.strip().rpartition("=")
    parts = [part.strip() for part in figures.split("/")]
    if not found or not name.strip() or len(parts) not in {2, 3} or not all(parts):
        raise FormProblemError(
            f"{line.strip()[:60]!r} is no price: write NAME=INPUT/OUTPUT or "
            "NAME=INPUT/CACHED/OUTPUT, like acme=0.12/0.40."
        )
    price = {"name": name.strip(), "input_per_million": parts[0], "output_per_million": parts[-1]}
    if len(parts) == 3:
        price["cached_input_per_million"] = parts[1]
    return price

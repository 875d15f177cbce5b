"""The ledger's own hours and prices for the commands on costs, over the control API."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.control_client import ControlClient
from gateway.cli.costing_files import read_text, refusing
from gateway.cli.errors import CliError
from gateway.cli.options import load, parse_time

if TYPE_CHECKING:
    from billing.costing.price_list import ListPrice
    from billing.costing.recorded_load import RecordedLoad


@dataclass(frozen=True, slots=True)
class LoadSource:
    """Where the hours come from: a file, or the ledger of a running Forebay."""

    profile: Path | None
    from_: str | None
    to: str | None
    state_dir: str | None

    def read(self) -> RecordedLoad:
        """Return the record. Raises :class:`CliError`."""
        from billing.costing.recorded_load import read_load

        if self.profile is not None and (self.from_ or self.to):
            raise CliError("--from and --to choose hours of the ledger, --profile is a file.")
        with refusing():
            return read_load(self._ask() if self.profile is None else read_text(self.profile))

    def list_prices(self, price_book: str) -> list[ListPrice]:
        """Return what the price book asks today. Raises :class:`CliError`."""
        from billing.costing.price_list import parse_price_list

        answer = ControlClient(load(self.state_dir)).get("/prices")
        rows = [
            row for row in answer["data"] if price_book in {row["price_book"], row["price_book_id"]}
        ]
        if not rows:
            raise CliError(f"There is no price book {price_book!r} with a price in effect.")
        with refusing():
            return parse_price_list(json.dumps(rows), currency=rows[0]["currency"])

    def _ask(self) -> str:
        query = {"from": parse_time(self.from_, "--from"), "to": parse_time(self.to, "--to")}
        answer = ControlClient(load(self.state_dir)).get("/load", **query)
        if not answer["data"]:
            raise CliError(
                f"Nothing was used in the hours from {answer['first_hour_at']} to"
                f" {answer['last_hour_at']}; the one that is not over does not count yet."
            )
        return json.dumps(answer)

"""The reasons why something is a dead letter. Pure."""

from __future__ import annotations

from enum import StrEnum


class DeadLetterReason(StrEnum):
    """Why something is a dead letter. The first three have an event, whose charge is NULL."""

    NO_PRICE = "no_price"  # the route had no price then; retried once one is set
    NO_USAGE = "no_usage"  # output was delivered, but the engine never said how much
    IMPLAUSIBLE_USAGE = "implausible_usage"  # counts that cannot be true
    CORRUPT_JOURNAL = "corrupt_journal"  # damaged or foreign bytes in a journal
    UNSTORABLE = "unstorable"  # a record that the database refuses
    FOREIGN_DUPLICATE = "foreign_duplicate"  # another project's event has this id already

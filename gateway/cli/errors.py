"""Errors of the command line. Their text is the sentence that the person reads.

CliError
├── NotRunningError   there is no control plane or database to ask
└── RefusedError      the control plane said no
"""

from __future__ import annotations


class CliError(Exception):
    """Expected failure of a command; exit code 2."""


class NotRunningError(CliError):
    """Nothing to ask: Forebay is not running, or not where the settings say."""


class RefusedError(CliError):
    """The control plane answered with an error."""

"""Errors of the embedded default.

UpError
├── StateDirectoryError   the state directory cannot be used
├── PortTakenError        somebody else listens there
├── OptionError           an option or variable has a value that cannot work
└── StartError            a part did not start, or keeps dying
    ├── DatabaseStartError
    └── CounterStoreStartError
"""

from __future__ import annotations


class UpError(Exception):
    """Expected failure of ``forebay up``; its text is the one sentence that the user reads."""


class StateDirectoryError(UpError):
    """The state directory is missing, foreign, full, damaged or in use."""


class PortTakenError(UpError):
    """A port that we need is in use by another process."""


class OptionError(UpError):
    """An option or environment variable has a value that cannot work."""


class StartError(UpError):
    """A part did not become ready, or dies again and again."""


class DatabaseStartError(StartError):
    """The embedded PostgreSQL did not start."""


class CounterStoreStartError(StartError):
    """The embedded Valkey did not start."""

"""Why a benchmark could not measure.

::

    BenchmarkError       its message is the sentence that the user reads
    ├── MissingToolError    a program, a CPU or a limit that this machine lacks
    ├── StartError          a process did not come up
    └── MeasurementError    a measurement gave no figure
"""

from __future__ import annotations


class BenchmarkError(Exception):
    """The benchmark cannot go on."""


class MissingToolError(BenchmarkError):
    """Something that this machine would have to have."""


class StartError(BenchmarkError):
    """A process did not come up, or does not do what it is there for."""


class MeasurementError(BenchmarkError):
    """A measurement gave no figure."""

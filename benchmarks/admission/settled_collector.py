"""The garbage collector as a data-plane worker has it once it has started."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.dataplane.worker import GC_THRESHOLD


@contextmanager
def settled_collector() -> Iterator[None]:
    """Have it so, and as it was again."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()

"""Requests and answers about classifiers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from gateway.controlplane.classifiers_api.models import ClassifierVersion
from gateway.controlplane.classifiers_api.service import ShippedWeights
from gateway.snapshot.weights import NAME_PATTERN

ClassifierName = Annotated[str, Path(pattern=NAME_PATTERN)]


class RollbackRequest(BaseModel):
    """``version``: absent or null, the one before the current; 0, what is shipped under the name."""

    model_config = ConfigDict(extra="forbid")

    version: Annotated[int, Field(strict=True, ge=0)] | None = None


class ClassifierAnswer(BaseModel):
    """One version of a classifier's weights. ``sha256`` is of all but the file's last 32 bytes.

    Version 0 is what is shipped under the name, and has no ``created_at``.
    """

    name: str
    version: int
    is_current: bool
    sha256: str
    size_bytes: int
    figures: dict[str, Any]
    created_at: datetime | None

    @classmethod
    def of(
        cls, version: ClassifierVersion | ShippedWeights, *, is_current: bool
    ) -> ClassifierAnswer:
        """Return the answer about a version."""
        return cls(
            name=version.name,
            version=version.version,
            is_current=is_current,
            sha256=version.sha256,
            size_bytes=version.size_bytes,
            figures=version.figures,
            created_at=version.created_at,
        )

"""The shape of every list: ``{"data": […]}``."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel

ItemT = TypeVar("ItemT", bound=BaseModel)


class Listing(BaseModel, Generic[ItemT]):
    """Some items, in an order that the endpoint states."""

    data: list[ItemT]

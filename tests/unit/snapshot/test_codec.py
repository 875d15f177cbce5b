"""The Snapshot's wire form."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.snapshot.codec import (
    SnapshotMalformedError,
    SnapshotSchemaVersionError,
    decode_snapshot,
    decode_version,
    encode_snapshot,
)
from gateway.snapshot.model import (
    SCHEMA_VERSION,
    ApiKeyEntry,
    Deployment,
    PriceEntry,
    Replica,
    Route,
    Snapshot,
)

TEXT = st.text(max_size=20)
KEYS = st.builds(
    ApiKeyEntry,
    id=TEXT,
    project_id=TEXT,
    organization_id=TEXT,
    price_book_id=TEXT,
    expires_at_us=st.none() | st.integers(0, 2**53),
    is_revoked=st.booleans(),
    is_blocked=st.booleans(),
    allowed_routes=st.none() | st.lists(TEXT, max_size=3).map(tuple),
    lineage_id=st.none() | TEXT,
)
REPLICAS = st.builds(Replica, id=TEXT, base_url=TEXT, secret=st.none() | TEXT)
DEPLOYMENTS = st.builds(
    Deployment,
    id=TEXT,
    name=TEXT,
    engine_model=TEXT,
    replicas=st.lists(REPLICAS, max_size=2).map(tuple),
)
ROUTES = st.builds(Route, id=TEXT, name=TEXT, deployment_id=TEXT, created_at_us=st.integers(0, 99))
PRICES = st.builds(
    PriceEntry,
    id=TEXT,
    price_book_id=TEXT,
    route_id=TEXT,
    effective_at_us=st.integers(0, 2**53),
    currency=TEXT,
    input_per_million=TEXT,
    output_per_million=TEXT,
    cached_input_per_million=st.none() | TEXT,
)
SNAPSHOTS = st.builds(
    Snapshot,
    version=st.integers(0, 2**62),
    published_at_us=st.integers(0, 2**53),
    keys=st.dictionaries(TEXT, KEYS, max_size=3),
    routes=st.dictionaries(TEXT, ROUTES, max_size=3),
    deployments=st.dictionaries(TEXT, DEPLOYMENTS, max_size=3),
    prices=st.lists(PRICES, max_size=3).map(tuple),
    organization_weights=st.dictionaries(TEXT, st.floats(0.01, 100.0), max_size=3),
)


@given(SNAPSHOTS)
def test_what_is_encoded_is_decoded(snapshot: Snapshot) -> None:
    data = encode_snapshot(snapshot)
    assert decode_snapshot(data) == snapshot
    assert decode_version(data) == snapshot.version


@given(SNAPSHOTS, st.data())
def test_a_snapshot_cut_short_is_malformed(snapshot: Snapshot, data: st.DataObject) -> None:
    whole = encode_snapshot(snapshot)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(SnapshotMalformedError):
        decode_snapshot(whole[:cut])


@given(st.binary(max_size=50))
def test_rubbish_is_malformed(data: bytes) -> None:
    with pytest.raises(SnapshotMalformedError):
        decode_snapshot(data)


def test_the_schema_version_is_always_written() -> None:
    plain = msgspec.json.decode(encode_snapshot(Snapshot(version=1, published_at_us=2)))
    assert plain["schema_version"] == SCHEMA_VERSION


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1])
def test_another_schema_is_told_apart_from_damage(version: int) -> None:
    """Whatever shape its other fields have."""
    data = b'{"version": 5, "schema_version": %d, "keys": [], "new": {}}' % version
    with pytest.raises(SnapshotSchemaVersionError) as caught:
        decode_snapshot(data)
    assert caught.value.found == version
    assert decode_version(data) == 5


def test_a_snapshot_without_schema_version_is_malformed() -> None:
    with pytest.raises(SnapshotMalformedError):
        decode_snapshot(b'{"version": 5, "published_at_us": 1}')


def test_unknown_fields_of_our_schema_are_ignored() -> None:
    """So that a field can be added without stopping older data planes."""
    data = b'{"version": 5, "published_at_us": 1, "schema_version": %d, "later": [1]}'
    assert decode_snapshot(data % SCHEMA_VERSION).version == 5


def test_a_snapshot_without_weights_has_none() -> None:
    """As an earlier release writes it: every organization has the same share."""
    data = b'{"version": 5, "published_at_us": 1, "schema_version": %d}'
    assert decode_snapshot(data % SCHEMA_VERSION).organization_weights == {}


def test_a_key_without_a_lineage_is_the_first_of_its_own() -> None:
    """As an earlier release writes every key."""
    data = (
        b'{"version": 5, "published_at_us": 1, "schema_version": %d, "keys": {"h": {"id": "key_1",'
        b' "project_id": "p", "organization_id": "o", "price_book_id": "b"}}}'
    )
    assert decode_snapshot(data % SCHEMA_VERSION).keys["h"].lineage == "key_1"


def test_null_and_empty_allowed_routes_stay_apart() -> None:
    def through_the_wire(allowed: tuple[str, ...] | None) -> tuple[str, ...] | None:
        entry = ApiKeyEntry("k", "p", "o", "b", allowed_routes=allowed)
        snapshot = Snapshot(version=1, published_at_us=1, keys={"h": entry})
        return decode_snapshot(encode_snapshot(snapshot)).keys["h"].allowed_routes

    assert through_the_wire(None) is None
    assert through_the_wire(()) == ()

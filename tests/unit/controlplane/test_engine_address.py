"""One text for each engine, however an admin writes its address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.controlplane.catalog.engine_address import identify_engine, normalize_engine_address

HOSTS = ["localhost", "127.0.0.1", "10.0.0.7", "gpu-1.example.com", "[2001:db8::1]", "[::1]"]


@given(
    scheme=st.sampled_from(["http", "https"]),
    host=st.sampled_from(HOSTS),
    port=st.none() | st.integers(1, 65535),
    prefix=st.sampled_from(["", "/a", "/a/B"]),
    ending=st.sampled_from(["", "/", "/v1", "/v1/"]),
    is_shouted=st.booleans(),
)
def test_spelling_makes_no_difference_and_everything_else_does(
    scheme: str, host: str, port: int | None, prefix: str, ending: str, is_shouted: bool
) -> None:
    authority = host if port is None else f"{host}:{port}"
    address = f"{scheme}://{authority}{prefix}"
    beginning = f"{scheme}://{authority}"
    spelled = (beginning.upper() if is_shouted else beginning) + prefix + ending
    engine = identify_engine(address)
    assert identify_engine(spelled) == engine
    assert identify_engine(engine) == engine == normalize_engine_address(engine)
    is_own = host in {"localhost", "127.0.0.1"}
    others = {one for one in HOSTS if one != host and not (is_own and one in HOSTS[:2])}
    for other in others:
        assert identify_engine(address.replace(host, other, 1)) != engine
    assert identify_engine(f"{address}/more") != engine


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://engine", "http://engine:80/"),
        ("https://engine:443/v1", "https://engine"),
        ("http://engine.:8000", "http://engine:8000"),
        ("http://[2001:DB8:0::1]:8000", "http://[2001:db8::1]:8000"),
        ("http://localhost:8000", "http://127.0.0.1:8000"),
    ],
)
def test_other_ways_to_write_it(one: str, other: str) -> None:
    assert identify_engine(one) == identify_engine(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://engine:443", "https://engine:443"),
        ("http://engine:8000", "http://engine:8001"),
        ("http://engine:8000/a", "http://engine:8000/A"),
        ("http://127.0.0.1:8000", "http://127.0.0.2:8000"),
    ],
)
def test_other_engines(one: str, other: str) -> None:
    assert identify_engine(one) != identify_engine(other)

"""Passwords are checked in the same way for members that exist and for those that do not."""

from __future__ import annotations

import asyncio
import time

import argon2
import pytest

from gateway.controlplane.errors import TooManyAttemptsError
from gateway.controlplane.passwords import PasswordChecker, hash_password, is_outdated


async def test_the_right_password_and_no_other() -> None:
    checker = PasswordChecker()
    stored = hash_password("grüße 🙂")
    assert await checker.is_right(stored, "grüße 🙂")
    assert not await checker.is_right(stored, "grüße")
    assert not await checker.is_right(None, "grüße 🙂")
    assert not await checker.is_right("no hash at all", "x")
    checker.close()


async def test_an_unknown_member_costs_a_whole_hash() -> None:
    checker = PasswordChecker()
    ours = argon2.extract_parameters(hash_password("x"))
    assert argon2.extract_parameters(checker._nobody) == ours
    stored = hash_password("right")
    spans = []
    for password_hash in (stored, None):
        begun = time.perf_counter()
        for _ in range(3):
            assert not await checker.is_right(password_hash, "wrong")
        spans.append(time.perf_counter() - begun)
    known, unknown = spans
    assert unknown > known / 3
    checker.close()


async def test_too_many_at_once_are_turned_away() -> None:
    checker = PasswordChecker()
    outcomes = await asyncio.gather(
        *(checker.is_right(None, "x") for _ in range(18)), return_exceptions=True
    )
    assert sum(isinstance(outcome, TooManyAttemptsError) for outcome in outcomes) == 2
    checker.close()


def test_hashes_with_other_parameters_are_outdated() -> None:
    assert not is_outdated(hash_password("x"))
    weak = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    assert is_outdated(weak.hash("x"))


@pytest.mark.parametrize("password", ["x\x00y", "x" * 1024])
def test_any_text_can_be_a_password(password: str) -> None:
    assert argon2.PasswordHasher().verify(hash_password(password), password)

"""Weights that belong to somebody else are copied once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backends.local import weights


def test_a_file_without_write_permission_is_copied_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    installed = tmp_path / "installed.gguf"
    installed.write_bytes(b"GGUF" * 100)
    monkeypatch.setattr(weights, "_get_installed_path", lambda: installed)
    copied = weights.get_weights_path()
    assert copied != installed
    assert copied.read_bytes() == installed.read_bytes()
    made_at = copied.stat().st_mtime_ns
    assert weights.get_weights_path() == copied
    assert copied.stat().st_mtime_ns == made_at


def test_a_copy_that_was_cut_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    installed = tmp_path / "installed.gguf"
    installed.write_bytes(b"GGUF" * 100)
    monkeypatch.setattr(weights, "_get_installed_path", lambda: installed)
    weights.get_weights_path().write_bytes(b"GG")
    assert weights.get_weights_path().read_bytes() == installed.read_bytes()

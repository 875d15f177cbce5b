"""Settings: where a value comes from, what is refused, and what the refusal says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.settings import Settings, SettingsError


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("FOREBAY_") or name in {"DATABASE_URL", "XDG_STATE_HOME"}:
            monkeypatch.delenv(name)


def test_defaults_are_loopback_and_below_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    settings = Settings.load()
    assert (settings.host, settings.port, settings.admin_port) == ("127.0.0.1", 8080, 8081)
    assert settings.state_dir == Path("/home/somebody/.local/state/forebay")
    assert settings.database_url is None


def test_an_option_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_PORT", "9001")
    monkeypatch.setenv("FOREBAY_ADMIN_PORT", "9002")
    settings = Settings.load(port="9003", admin_port=None)
    assert (settings.port, settings.admin_port) == (9003, 9002)


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_WORKERS", "")
    monkeypatch.setenv("DATABASE_URL", "")
    settings = Settings.load()
    assert settings.workers is None
    assert settings.database_url is None


def test_state_dir_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert Settings.load(state_dir="a b").state_dir == tmp_path / "a b"
    assert Settings.load(state_dir="~/x").state_dir == Path("/home/somebody/x")


def test_the_request_log_is_a_path_of_here_or_standard_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert Settings.load().request_log is None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOREBAY_REQUEST_LOG", "requests.jsonl")
    assert Settings.load().request_log == str(tmp_path / "requests.jsonl")
    monkeypatch.setenv("FOREBAY_REQUEST_LOG", "stdout")
    assert Settings.load().request_log == "stdout"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("postgres://u:p@h/d", "postgresql://u:p@h/d"),
        ("postgresql://u:p@h/d?sslmode=require", "postgresql://u:p@h/d?sslmode=require"),
        ("postgresql+psycopg://u:p@h/d", "postgresql://u:p@h/d"),
    ],
)
def test_database_addresses(monkeypatch: pytest.MonkeyPatch, given: str, kept: str) -> None:
    monkeypatch.setenv("DATABASE_URL", given)
    assert Settings.load().database_url == kept


def test_our_own_variable_wins_over_the_common_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://common/d")
    monkeypatch.setenv("FOREBAY_DATABASE_URL", "postgres://ours/d")
    assert Settings.load().database_url == "postgresql://ours/d"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:8000/v1", "http://h:8000"),
        ("http://h:8000/v1/", "http://h:8000"),
        ("https://h/prefix/v1", "https://h/prefix"),
    ],
)
def test_engine_address_with_or_without_v1(given: str, kept: str) -> None:
    assert Settings.load(vllm_url=given).vllm_url == kept


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("FOREBAY_PORT", "abc", "FOREBAY_PORT ('abc') cannot be used"),
        ("FOREBAY_PORT", "65536", "less than or equal to 65535"),
        ("FOREBAY_ADMIN_PORT", "-1", "FOREBAY_ADMIN_PORT"),
        ("FOREBAY_WORKERS", "0", "FOREBAY_WORKERS ('0')"),
        ("FOREBAY_HOST", "a b", "must be an IP address or a host name"),
        ("FOREBAY_VLLM_URL", "localhost:8000", "must be an address such as"),
        ("FOREBAY_VLLM_URL", "http://h:99999", "out of range"),
        ("FOREBAY_VLLM_URL", "http://h:0", "must be an address such as"),
        ("FOREBAY_ADMIN_EMAIL", "admin", "must be an e-mail address"),
        ("FOREBAY_IDLE_TIMEOUT_SECONDS", "nan", "finite"),
        ("FOREBAY_IDLE_TIMEOUT_SECONDS", "0", "greater than 0"),
        ("FOREBAY_REDIS_URL", "http://x", "must begin with redis://"),
    ],
)
def test_a_refusal_is_one_sentence_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as refused:
        Settings.load()
    assert says in str(refused.value)
    assert variable in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_refusal_names_the_option_when_it_was_an_option() -> None:
    with pytest.raises(SettingsError, match="--admin-port"):
        Settings.load(admin_port="many")


@pytest.mark.parametrize("variable", ["DATABASE_URL", "FOREBAY_DATABASE_URL"])
def test_a_refused_address_is_blamed_on_its_variable_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("FOREBAY_DATABASE_URL", "")
    monkeypatch.setenv(variable, "mysql://root:hunter2@h/d")
    with pytest.raises(SettingsError) as refused:
        Settings.load()
    assert str(refused.value).startswith(f"{variable} cannot be used: ")
    assert "hunter2" not in str(refused.value)


def test_a_refused_address_is_not_blamed_on_a_variable_that_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://h/d")
    monkeypatch.setenv("FOREBAY_DATABASE_URL", "mysql://h/d")
    with pytest.raises(SettingsError, match=r"^FOREBAY_DATABASE_URL cannot"):
        Settings.load()


def test_both_ports_the_same() -> None:
    with pytest.raises(SettingsError, match="must differ"):
        Settings.load(port=9000, admin_port=9000)
    assert Settings.load().metrics_port is None
    for port in (8080, 8081):
        with pytest.raises(SettingsError, match="FOREBAY_METRICS_PORT"):
            Settings.load(metrics_port=port)


def test_secrets_do_not_show_when_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_ADMIN_TOKEN", "token-of-the-admin")
    monkeypatch.setenv("FOREBAY_DATABASE_URL", "postgresql://u:hunter2@h/d")
    shown = repr(Settings.load())
    assert "token-of-the-admin" not in shown
    assert "hunter2" not in shown


def test_an_empty_state_directory_is_refused() -> None:
    with pytest.raises(SettingsError, match="must name a directory"):
        Settings.load(state_dir="")

"""``forebay engine print``: settings by file and by option, and what is said of wrong ones."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.errors import CliError
from gateway.cli.main import make_app

_TOML = """
model = "org/model"
served_names = ["small"]
quantization = "fp8"
tensor_parallel = 2
sleep = "level_1"
[speculation]
method = "ngram"
tokens = 3
[environment]
HF_HOME = "models"
[agent]
port = 8100
keep_warm_seconds = 600
"""


@pytest.fixture(autouse=True)
def _no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOREBAY_VLLM_API_KEY", raising=False)


def printed(*arguments: str) -> list[str]:
    result = CliRunner().invoke(make_app("engine"), ["engine", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return shlex.split(result.output)


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(make_app("engine"), ["engine", *arguments])
    assert isinstance(result.exception, CliError), result.output
    return str(result.exception)


@pytest.mark.parametrize("command", [("print",), ("run", "--dry-run")])
def test_a_file_and_options_over_it(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "engine.toml"
    path.write_text(_TOML)
    words = printed(*command, "--file", str(path), "--tensor-parallel", "4", "--port", "9000")
    following = dict(pairwise(words))
    assert following["--tensor-parallel-size"] == "4"
    assert following["--port"] == "9000"
    assert following["serve"] == "org/model"
    assert "HF_HOME=models" in words
    assert "VLLM_SERVER_DEV_MODE=1" in words


def test_a_json_file(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    path.write_text(json.dumps({"model": "m", "kv_cache_dtype": "fp8"}))
    assert "--kv-cache-dtype" in printed("print", "--file", str(path))


def test_options_alone() -> None:
    words = printed(
        *("print", "m", "--no-prefix-caching", "--speculation", '{"method":"mtp","tokens":1}'),
        *("--argument", "--seed", "--argument", "7", "--command", "python -m serving"),
    )
    assert words[1:5] == ["python", "-m", "serving", "m"]
    assert words[-2:] == ["--seed", "7"]
    assert "--no-enable-prefix-caching" in words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('modle = "m"', "Name a model"),
        ('model = "m"\ncolour = 1', "colour"),
        ('model = "m"\ntensor_parallel = 0', "tensor_parallel"),
        ('model = "m"\n[agent]\nkeep_warm_seconds = 0', "keep_warm_seconds"),
        ('model = "m"\n[agent]\nbegins_asleep = true', "agent.port"),
        ('model = "m"\nsleep = "deep"', "sleep"),
        ('model = "m"\narguments = ["--port", "1"]', "--port is a setting"),
        ("model = ", "not valid"),
        ('model = "m"\nport = 8100\n[agent]\nport = 8100', "both 8100"),
        ('model = "m"\n[agent]\nkeep_warm_seconds = 60', "needs agent.port"),
        ('model = "m"\n[agent]\nport = 1\nkeep_warm_seconds = inf', "keep_warm_seconds"),
        ('model = "m"\n[environment]\n"A;rm -rf /" = "x"', "no name of a variable"),
        (
            'model = "m"\n[speculation]\ntokens = 2\noptions = {a = 2020-01-01}',
            "cannot be written as JSON",
        ),
    ],
)
def test_wrong_files_are_explained(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "engine.toml"
    path.write_text(text)
    assert said in refusal("print", "--file", str(path))


def test_what_is_missing() -> None:
    assert "Name a model" in refusal("print")
    assert "cannot be read" in refusal("print", "--file", "nowhere.toml")
    assert "not valid JSON" in refusal("print", "m", "--speculation", "{")
    assert "No closing quotation" in refusal("print", "m", "--command", 'vllm "serve')
    assert "drain_seconds must be" in refusal("print", "m", "--drain-seconds", "inf")
    assert "begins with a dash" in refusal("print", "m", "--served-name=--port")

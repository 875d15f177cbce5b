"""Which engine the gateway starts with: a vLLM that the settings name, or the local one."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from gateway.settings import Settings
from gateway.up.errors import OptionError, PortTakenError
from gateway.up.ports import reserve_port, url_of
from gateway.up.progress import Progress
from gateway.up.state_directory import StateDirectory

LOCAL_HOST = "127.0.0.1"
LOCAL_MODEL = "smollm2-135m-instruct"
_ASK_SECONDS = 5.0


@dataclass(frozen=True)
class EngineChoice:
    """The engine's address (without /v1), the model's name there, and how we run it."""

    base_url: str
    model: str
    api_key: str | None
    local_port: int | None  # None: not ours to start
    agent_url: str | None = None  # of what starts, wakes and stops it


def choose_engine(settings: Settings, state: StateDirectory, progress: Progress) -> EngineChoice:
    """Return the engine to use and remember it in the state directory.

    Raises :class:`OptionError` when a vLLM's model name cannot be known.
    """
    remembered = state.find_json(state.engine_file) or {}
    if settings.vllm_url is None:
        choice = _choose_local(remembered)
    else:
        choice = _choose_vllm(settings, settings.vllm_url, remembered, progress)
    state.write_json(
        state.engine_file,
        {"base_url": choice.base_url, "model": choice.model, "local_port": choice.local_port},
    )
    return choice


def _choose_local(remembered: dict[str, Any]) -> EngineChoice:
    """Keep the earlier port while it is free: the catalog knows the engine by it."""
    port = remembered.get("local_port")
    try:
        chosen = reserve_port(LOCAL_HOST, port if isinstance(port, int) else 0, "another port")
    except PortTakenError:
        chosen = reserve_port(LOCAL_HOST, 0, "another port")
    return EngineChoice(url_of(LOCAL_HOST, chosen), LOCAL_MODEL, None, chosen)


def _choose_vllm(
    settings: Settings, base_url: str, remembered: dict[str, Any], progress: Progress
) -> EngineChoice:
    api_key = settings.vllm_api_key.get_secret_value() if settings.vllm_api_key else None
    found: str | None = None
    try:
        found = _ask_model_name(base_url, api_key)
    except (OSError, http.client.HTTPException, ValueError) as error:
        progress.warn(f"The engine at {base_url} does not answer yet ({_reason(error)}).")
    model = settings.vllm_model or found
    if model is None and remembered.get("base_url") == base_url:
        model = str(remembered["model"])
    if model is None:
        raise OptionError(
            f"The name of the model at {base_url} is unknown: start the engine first, or set"
            " FOREBAY_VLLM_MODEL."
        )
    return EngineChoice(base_url, model, api_key, None, settings.vllm_agent_url)


def _ask_model_name(base_url: str, api_key: str | None) -> str:
    request = urllib.request.Request(f"{base_url}/v1/models")  # noqa: S310 - checked by Settings
    if api_key:
        request.add_header("Authorization", f"Bearer {api_key}")
    # Straight there, as the data plane goes, whatever proxy the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_ASK_SECONDS) as reply:
        content = json.load(reply)
    try:
        return str(content["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        raise ValueError("its /v1/models names no model") from None


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    return str(getattr(error, "reason", error))

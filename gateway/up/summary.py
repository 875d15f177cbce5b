"""What a started Forebay tells: the summary for people, the ready file for programs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from gateway.up.errors import OptionError
from gateway.up.first_run import ShownOnce
from gateway.up.parts import Addresses
from gateway.up.private_json import probe_private_json, write_private_json

_PLACEHOLDER = "$FOREBAY_API_KEY"


def print_summary(
    addresses: Addresses, model: str, admin_email: str, shown: ShownOnce, state_dir: Path
) -> None:
    """Print the summary on stdout; the secret and the password only when they are new."""
    secret = shown.secret or _PLACEHOLDER
    lines = [
        "",
        "Forebay is up.",
        "",
        f"  Base URL    {addresses.base_url}",
        f"  Model       {model}",
    ]
    if shown.secret:
        lines.append(f"  API key     {secret}   (shown once; keep it)")
    else:
        lines.append(
            "  API key     as shown at the first start; `forebay keys create` makes another"
        )
    lines += [f"  Dashboard   {addresses.admin_url}/", f"  Login       {admin_email}"]
    if shown.admin_password:
        lines.append(f"  Password    {shown.admin_password}   (shown once; keep it)")
    lines += [f"  State       {state_dir}", "", "Try it:", ""]
    lines += _indented(_curl(addresses.base_url, model, secret))
    lines += ["", "or in Python (pip install openai):", ""]
    lines += _indented(_python(addresses.base_url, model, secret))
    lines += ["", "Ctrl-C stops everything and loses nothing.", ""]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _curl(base_url: str, model: str, secret: str) -> str:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello!"}]})
    quote = '"' if secret == _PLACEHOLDER else "'"
    return (
        f"curl {base_url}/chat/completions \\\n"
        f"  -H {quote}Authorization: Bearer {secret}{quote} \\\n"
        f"  -H 'Content-Type: application/json' \\\n"
        f"  -d '{body}'"
    )


def _python(base_url: str, model: str, secret: str) -> str:
    key = 'os.environ["FOREBAY_API_KEY"]' if secret == _PLACEHOLDER else f'"{secret}"'
    imports = "import os\n\n" if secret == _PLACEHOLDER else ""
    return (
        f"{imports}from openai import OpenAI\n\n"
        f'client = OpenAI(base_url="{base_url}", api_key={key})\n'
        f"reply = client.chat.completions.create(\n"
        f'    model="{model}", messages=[{{"role": "user", "content": "Hello!"}}]\n'
        f")\n"
        f"print(reply.choices[0].message.content)"
    )


def _indented(text: str) -> list[str]:
    return [f"    {line}".rstrip() for line in text.splitlines()]


def check_ready_file(path: Path) -> None:
    """See early that the ready file can be written, and remove one of an earlier run.

    Raises :class:`OptionError` with the reason.
    """
    try:
        reason = _reason_against(path)
        if reason is None:
            path.unlink(missing_ok=True)
            probe_private_json(path)
    except OSError as error:
        reason = error.strerror or str(error)
    if reason is not None:
        raise OptionError(f"--ready-file {path} cannot be written: {reason}.")


def _reason_against(path: Path) -> str | None:
    if path.is_symlink():  # it would be replaced, not followed: fatal for /dev/stdout
        return "it is a symbolic link; name the file itself"
    if path.is_dir():
        return "it is a directory"
    return "it is no regular file" if path.exists() and not path.is_file() else None


def write_ready_file(
    path: Path,
    *,
    addresses: Addresses,
    model: str,
    admin_email: str,
    shown: ShownOnce,
    state_dir: Path,
) -> None:
    """Write the ready file, mode 0600, whole: who sees it can send requests."""
    write_private_json(
        path,
        {
            "base_url": addresses.base_url,
            "admin_url": addresses.admin_url,
            "secret": shown.secret,
            "admin_email": admin_email,
            "admin_password": shown.admin_password,
            "model": model,
            "state_dir": str(state_dir),
            "pid": os.getpid(),
        },
    )

"""A command to continue a prompt to a sequence, or to what is wrong with the prompt."""

from __future__ import annotations

from backends.local.engine.pipeline import (
    EmptyPromptError,
    InvalidPromptError,
    Pipeline,
    PromptTooLongError,
)
from backends.local.engine.sequence import Sequence
from backends.local.messages import Rejected, Submit


def new_sequence(command: Submit, pipeline: Pipeline, context_tokens: int) -> Sequence | Rejected:
    """Return the sequence that is asked for, or why it cannot be had."""
    try:
        prompt = pipeline.encode(command.prompt)
    except EmptyPromptError:
        return Rejected(command.sequence_id, "The prompt cannot be empty.", "prompt")
    except InvalidPromptError as error:
        return Rejected(command.sequence_id, str(error), "prompt")
    except PromptTooLongError as error:
        problem = _too_long(error.tokens, context_tokens)
        return Rejected(command.sequence_id, problem, "input_tokens")
    room = context_tokens - len(prompt)
    wanted = command.sampling.max_tokens
    return Sequence(
        command.sequence_id,
        command.request_id,
        prompt,
        command.sampling,
        max_tokens=room if wanted is None else min(wanted, room),
        eos_token_id=pipeline.eos_token_id,
        vocabulary=pipeline.vocabulary,
    )


def _too_long(tokens: int, context_tokens: int) -> str:
    return (
        f"This model's maximum context length is {context_tokens} tokens. However, your "
        f"prompt contains at least {tokens} input tokens, which leaves no room for output "
        "tokens. Please reduce the length of the input prompt. "
        f"(parameter=input_tokens, value={tokens})"
    )

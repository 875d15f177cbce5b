"""The request's messages or prompt field to engine prompts."""

from __future__ import annotations

from collections.abc import Sequence

from backends.local.errors import ApiError
from backends.local.messages import ChatMessage, ChatPrompt, Prompt, TextPrompt, TokenPrompt
from backends.local.request_schema import ContentPart, Message

MAX_PROMPTS = 256
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})


def chat_prompt(messages: Sequence[Message], model_name: str) -> ChatPrompt:
    """Return the turns with their content as text. Raises :class:`ApiError` 400."""
    if not messages:
        message = (
            "Cannot apply chat template to an empty conversation. Provide at least one message."
        )
        raise ApiError(400, message)
    return ChatPrompt(tuple(ChatMessage(m.role, _text(m, model_name)) for m in messages))


def _text(message: Message, model_name: str) -> str:
    content = message.content
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part, model_name) for part in content)


def _part_text(part: ContentPart, model_name: str) -> str:
    if part.type not in _TEXT_PARTS:
        raise ApiError(400, f"{model_name} is not a multimodal model")
    if part.text is None:
        raise ApiError(400, "A text part needs a text.", param="messages")
    return part.text


def completion_prompts(
    prompt: str | list[str] | list[int] | list[list[int]],
) -> list[Prompt]:
    """Return the one or many prompts of the field. Raises :class:`ApiError` 400."""
    if isinstance(prompt, str):
        return [TextPrompt(prompt)]
    if not prompt:
        raise ApiError(400, "The prompt cannot be empty.", param="prompt")
    if len(prompt) > MAX_PROMPTS and not isinstance(prompt[0], int):
        raise ApiError(400, f"At most {MAX_PROMPTS} prompts in one request.", param="prompt")
    prompts: list[Prompt] = []
    token_ids: list[int] = []
    for item in prompt:
        if isinstance(item, int):
            token_ids.append(item)
        elif isinstance(item, str):
            prompts.append(TextPrompt(item))
        else:
            prompts.append(TokenPrompt(tuple(item)))
    return [TokenPrompt(tuple(token_ids))] if token_ids else prompts

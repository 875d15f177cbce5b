"""The errors that the HTTP side answers with, in vLLM's shape."""

from __future__ import annotations

from typing import Any

_MOST_CHARACTERS = 2000  # of a text that may repeat what the client sent


class ApiError(Exception):
    """A refusal or failure with its HTTP status; its text goes to the client."""

    def __init__(
        self, status: int, message: str, *, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(_shorten(message))
        self.status = status
        self.kind = kind
        self.param = None if param is None else _shorten(param)

    def payload(self) -> dict[str, Any]:
        """Return the JSON body."""
        return {
            "error": {
                "message": str(self),
                "type": self.kind,
                "param": self.param,
                "code": self.status,
            }
        }


class InvalidValueError(ApiError):
    """400: a parameter outside its range; worded as vLLM words it."""

    def __init__(self, param: str, message: str, value: object) -> None:
        super().__init__(400, f"{message} (parameter={param}, value={value})", param=param)


class UnsupportedError(ApiError):
    """400: valid for OpenAI or vLLM, but this engine cannot do it."""

    def __init__(self, param: str, what: str) -> None:
        super().__init__(400, f"The local engine does not support {what}.", param=param)


class UnknownModelError(ApiError):
    """404: the request names a model that is not served."""

    def __init__(self, asked: str, served: str) -> None:
        message = f"The model `{asked}` does not exist. Valid aliases: {served}."
        super().__init__(404, message, kind="NotFoundError", param="model")


class EngineNotReadyError(ApiError):
    """503: the model is still being loaded, or the engine stops; try again when it has started."""

    def __init__(self, message: str = "The engine is starting: its model is being loaded.") -> None:
        super().__init__(503, message, kind="ServiceUnavailableError")


class EngineFailureError(ApiError):
    """500: the engine gave up on a request, or has gone."""

    def __init__(self, message: str) -> None:
        super().__init__(500, message, kind="InternalServerError")


def _shorten(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


class ClientGoneError(Exception):
    """The client has closed its connection; nobody is left to answer."""

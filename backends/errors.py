"""What can go wrong between us and an engine, by when it happened.

"Before anything came back" and "after" are told apart because they are retried and billed
differently::

    BackendError
    ├── ConnectError          no connection: refused, unreachable, name unknown, TLS
    │   └── ConnectTimeoutError
    ├── EngineAsleepError     it holds the request until somebody wakes it; we took it back
    ├── StaleConnectionError  a kept connection was closed under the request; nothing came back
    ├── BackendTimeoutError   the engine was silent too long
    ├── ReplyCutError         the connection ended inside the reply
    ├── MalformedReplyError   what came back is not HTTP, or not what the contract says
    └── ReplyTooLargeError    a reply or one event of it is over the documented limit
"""

from __future__ import annotations


class BackendError(Exception):
    """An engine could not be reached or did not answer as it should."""


class ConnectError(BackendError):
    """No connection could be made."""


class ConnectTimeoutError(ConnectError):
    """No connection could be made in time."""


class EngineAsleepError(BackendError):
    """The engine sleeps: it has taken the request and does nothing for it."""


class StaleConnectionError(BackendError):
    """A kept connection was closed by the engine before any byte of the reply came."""


class BackendTimeoutError(BackendError):
    """The engine was silent for longer than allowed."""


class ReplyCutError(BackendError):
    """The connection ended before the reply was whole."""


class MalformedReplyError(BackendError):
    """The bytes that came back are not a valid reply."""


class ReplyTooLargeError(BackendError):
    """A reply, or one event of a stream, is larger than the configured limit."""

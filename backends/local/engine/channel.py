"""The engine process's end of the socket: commands in, reports out."""

from __future__ import annotations

import select
import socket

from backends.local.messages import LENGTH, Command, Report, decode_command, encode_frame

_CHUNK_BYTES = 1 << 18


class ChannelClosedError(Exception):
    """The HTTP process has gone."""


class Channel:
    """Reads without waiting while there is work, so that no thread is needed beside the engine."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    def receive(self, timeout: float | None) -> list[Command]:
        """Return the commands that have come, after at most ``timeout`` seconds.

        None: at least a part of one is waited for. Raises :class:`ChannelClosedError`.
        """
        while select.select([self._connection], [], [], timeout)[0]:
            data = self._connection.recv(_CHUNK_BYTES)
            if not data:
                raise ChannelClosedError
            self._buffer += data
            timeout = 0
        return self._take_commands()

    def _take_commands(self) -> list[Command]:
        commands: list[Command] = []
        start = 0
        while len(self._buffer) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer, start)
            end = start + LENGTH.size + length
            if len(self._buffer) < end:
                break
            commands.append(decode_command(bytes(self._buffer[start + LENGTH.size : end])))
            start = end
        del self._buffer[:start]
        return commands

    def send(self, report: Report) -> None:
        """Send a report. Raises :class:`ChannelClosedError`."""
        try:
            self._connection.sendall(encode_frame(report))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosedError from error

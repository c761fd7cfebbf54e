"""HTTP with patience that ends: a connection must send the headers of a request in time."""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, which by itself waits for headers that began to arrive without end."""

    header_seconds: ClassVar[float] = 20.0
    _patience: asyncio.TimerHandle | None = None

    @classmethod
    def with_limit(cls, seconds: float) -> "type[PatientProtocol]":
        return type("PatientProtocol", (cls,), {"header_seconds": seconds})

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_headers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)

    def _wait_for_headers(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(self.header_seconds, self._close_if_silent)

    def _close_if_silent(self) -> None:
        """Close the connection unless a request is being answered."""
        is_waiting = self.cycle is None or self.cycle.response_complete
        if is_waiting and not self.transport.is_closing():
            self.transport.close()

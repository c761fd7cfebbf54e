"""HTTP with patience that ends: a connection must send its first headers in time."""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, which by itself waits for the first headers without end."""

    header_seconds: ClassVar[float] = 20.0

    @classmethod
    def with_limit(cls, seconds: float) -> "type[PatientProtocol]":
        return type("PatientProtocol", (cls,), {"header_seconds": seconds})

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._first_headers: asyncio.TimerHandle | None = self.loop.call_later(
            self.header_seconds, self._close_if_silent
        )

    def connection_lost(self, exc: Exception | None) -> None:
        if self._first_headers is not None:
            self._first_headers.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        self._first_headers = None
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()

"""The outermost layer of the server: who may call, how large and how slow a request may be."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bic.serve.access import Access
from bic.serve.failures import ApiError, too_many
from bic.serve.limits import Limits
from bic.serve.metrics import OTHER, Metrics

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self' blob:; connect-src 'self'; manifest-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
}
DRAIN_SECONDS = 2.0  # that a refused upload is still read, so that the caller sees the answer
WITH_IMAGES = ("/v1/predict", "/v1/learn", "/v1/corrections")


class Guard:
    """Checks every request before the application sees it, and adds headers to every answer."""

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[BaseRoute],
        access: Access,
        limits: Limits,
        metrics: Metrics,
    ) -> None:
        self.app = app
        self.routes = routes
        self.access = access
        self.limits = limits
        self.metrics = metrics
        self.bytes_in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:  # there are no websockets here
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.monotonic()
        body = _Body(self, scope, receive)
        status = 500

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                if not body.is_complete:
                    headers["Connection"] = "close"
                    await body.drain()
            await send(message)

        try:
            headers = Headers(scope=scope)
            self.access.check(scope["method"], scope["path"], headers)
            body.check_length(headers)
            await self.app(scope, body.receive, send_guarded)
        except ApiError as error:
            await error.response()(scope, receive, send_guarded)
        finally:
            self.bytes_in_flight -= body.num_bytes
            seconds = time.monotonic() - start
            self.metrics.request(self._route(scope), scope["method"], status, seconds)

    def _route(self, scope: Scope) -> str:
        """The route of a request, also of one that was refused here."""
        found = (route for route in self.routes if route.matches(scope)[0] is Match.FULL)
        return getattr(next(found, None), "path", OTHER)


class _Body:
    """The body of a request, as it arrives."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive) -> None:
        self.guard = guard
        self._receive = receive
        limits = guard.limits
        has_images = scope["path"] in WITH_IMAGES
        self.limit = limits.upload_bytes if has_images else limits.json_bytes
        self.deadline = time.monotonic() + limits.body_seconds
        self.num_bytes = 0
        self.is_complete = scope["method"] in ("GET", "HEAD")

    def check_length(self, headers: Headers) -> None:
        """Refuse a request that announces too much, before any of it is read."""
        length = headers.get("content-length", "0")
        self.is_complete = self.is_complete or (
            length == "0" and "transfer-encoding" not in headers
        )
        if length.isdecimal() and len(length) < 20 and int(length) <= self.limit:
            return
        raise self._too_large()

    async def receive(self) -> Message:
        if self.is_complete:
            return await self._receive()
        seconds = self.deadline - time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.001, seconds))
        except TimeoutError:
            raise ApiError(
                408,
                f"the request did not arrive within {self.guard.limits.body_seconds:g} seconds",
                "send it faster, or in parts",
            ) from None
        self._count(message)
        return message

    def _count(self, message: Message) -> None:
        num_new = len(message.get("body", b""))
        self.num_bytes += num_new
        self.guard.bytes_in_flight += num_new
        if not message.get("more_body", False):
            self.is_complete = True
        if self.num_bytes > self.limit:
            raise self._too_large()
        if self.guard.bytes_in_flight > self.guard.limits.uploads_in_flight:
            raise too_many("other uploads are being handled, and they are large")

    def _too_large(self) -> ApiError:
        allowed = f"{self.limit / 2**20:g} MB"
        return ApiError(413, f"the request has more than {allowed}", "send less at once")

    async def drain(self) -> None:
        """Read on for a moment: closing at once would hide the answer from the caller."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self.is_complete:
                    message = await self._receive()
                    is_last = not message.get("more_body", False)
                    self.is_complete = is_last or message["type"] == "http.disconnect"

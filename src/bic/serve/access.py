"""Who may call what: host names, origins and the token."""

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from bic.serve.failures import ApiError
from bic.serve.tokens import TokenCheck

READS = ("GET", "HEAD")
OPEN_PATHS = ("/", "/health", "/docs", "/docs/style.css", "/v1/openapi.json")
OPEN_FOLDER = "/page/"
# POST because it has a body; it changes nothing.
PREDICT = "/v1/predict"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Access:
    """The rules for a server that is bound to `host` and reached under some other `names`.

    On a loopback address only calls that change something need the token. On any other address, and
    behind a proxy, all calls need it, except the page's own files, the documents and /health: these
    say nothing about the model.
    """

    def __init__(self, host: str, names: Iterable[str], token: TokenCheck) -> None:
        self.token = token
        others = [_bare(name) for name in names]
        self.is_protected = not is_loopback(host) or bool(others)
        self.hosts = {*LOCAL_NAMES, _bare(host), *others}
        # A site that lets its name point here (DNS rebinding) has a name, never a bare address.
        self.allows_addresses = not is_loopback(host)
        if self.allows_addresses:
            self.hosts.add(socket.gethostname().lower())

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Raise ApiError for a call that is not allowed."""
        self._check_host(headers)
        _check_origin(headers, method)
        if self.needs_token(method, path):
            self._check_token(headers)

    def needs_token(self, method: str, path: str) -> bool:
        is_read = method in READS or path == PREDICT
        if is_read and (path in OPEN_PATHS or path.startswith(OPEN_FOLDER)):
            return False
        return self.is_protected or not is_read

    def has_token(self, headers: Headers) -> bool:
        token = _bearer(headers)
        return token is not None and self.token.fits(token)

    def _check_token(self, headers: Headers) -> None:
        challenge = {"WWW-Authenticate": 'Bearer realm="bic"'}
        if _bearer(headers) is None:
            raise ApiError(
                401,
                "this call needs the token",
                "send it as the header Authorization: Bearer TOKEN",
                headers=challenge,
            )
        if not self.has_token(headers):
            raise ApiError(
                401,
                "the token is wrong",
                "use the one that bic serve printed at its first start, or start it with "
                "--new-token",
                code="wrong_token",
                headers=challenge,
            )

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        name = _bare(_without_port(given[0])) if len(given) == 1 else ""
        if name in self.hosts or (self.allows_addresses and _is_address(name)):
            return
        raise ApiError(
            403,
            "the server is not known under this host name",
            "use the address that bic serve printed, or start it with --name HOST",
            code="foreign_host",
        )


def _check_origin(headers: Headers, method: str) -> None:
    """Refuse what a page of another site sends. Callers that are not browsers send no Origin."""
    origin = headers.get("origin")
    is_foreign = origin is not None and not _same_place(origin, headers["host"])
    is_cross_site = headers.get("sec-fetch-site") in ("cross-site", "same-site")
    if is_foreign or (is_cross_site and method not in READS):
        raise ApiError(
            403, "pages of other sites cannot call this server", "open the server's own page"
        )


def _same_place(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
        default = {"http": 80, "https": 443}[parts.scheme]
        port = parts.port or default
        own = urlsplit(f"//{host}")
        own_port = own.port or default
    except (ValueError, KeyError):
        return False
    return bool(parts.hostname) and (parts.hostname, port) == (own.hostname, own_port)


def _bearer(headers: Headers) -> str | None:
    given = headers.getlist("authorization")
    if len(given) != 1:
        return None
    scheme, _, token = given[0].partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _without_port(host: str) -> str:
    """
    >>> _without_port("localhost:8000"), _without_port("[::1]:8000"), _without_port("::1")
    ('localhost', '[::1]', '::1')
    """
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host if host.count(":") > 1 else host.partition(":")[0]


def _bare(name: str) -> str:
    return name.strip("[]").rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if _bare(host) == "localhost":
        return True
    return _is_address(_bare(host)) and ipaddress.ip_address(_bare(host)).is_loopback

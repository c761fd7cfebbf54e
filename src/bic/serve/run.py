"""Start a server: bind the address, print the token once, and answer until told to stop."""

import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from bic import files
from bic.errors import BicError, InUseError, UserError
from bic.model.version_files import consistent, is_versioned, live_version
from bic.model.versions import UNFINISHED
from bic.serve.access import Access
from bic.serve.app import create_app
from bic.serve.context import Context
from bic.serve.limits import Limits
from bic.serve.protocol import PatientProtocol
from bic.serve.tokens import make_private_folder, open_token
from bic.store.learner_files import load_learning
from bic.store.model_folder import open_model
from bic.store.model_settings import given, refuse_changes
from bic.store.photographs import possible_learning
from bic.store.version_writer import NOT_WRITABLE, README, SERVER_LOCK, WAITING, remove_empty

BACKLOG = 2048
SWITCH_SECONDS = 0.001
MOST_FILES = 65536  # descriptors that are asked for


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Where to listen, and how. `settings` are those of a model that does not exist yet."""

    host: str = "127.0.0.1"
    port: int = 8000
    names: Sequence[str] = ()
    state: Path | None = None
    new_token: bool = False
    device: str = "cpu"
    trust: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)


class StoppableServer(uvicorn.Server):
    """A server that listens already. Its streams of events end when it is told to stop.

    `token` is known only if it was created just now.
    """

    def __init__(
        self, config: uvicorn.Config, context: Context, listener: socket.socket, token: str | None
    ) -> None:
        super().__init__(config)
        self.context = context
        self.listener = listener
        self.token = token
        self.lock = ExitStack()  # closed when the server has ended

    @property
    def address(self) -> str:
        host, port = self.listener.getsockname()[:2]
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def answer(self) -> None:
        """Answer until SIGTERM or Ctrl-C."""
        with self.lock:
            self.run(sockets=[self.listener])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.context.stopping.set()
        await super().shutdown(sockets)


def serve(model: Path, options: ServeOptions, say: Callable[[str], None]) -> None:
    """Serve a model until SIGTERM or Ctrl-C. `say` prints the address and the token."""
    server = prepared(model, options)
    for line in greeting(server.address, server.token):
        say(line)
    # Threads that run the network or a decoder get their turn back quickly while requests arrive.
    sys.setswitchinterval(SWITCH_SECONDS)
    server.answer()


def prepared(model: Path, options: ServeOptions) -> StoppableServer:
    """A server that is bound to its address. Raises UserError if it cannot start."""
    _refuse_other_folders(model)
    settings = {name: value for name, value in options.settings.items() if value is not None}
    _check_settings(model, settings)
    with ExitStack() as stack:
        stack.enter_context(_only_server(model))
        server = _bound_server(model, options, settings)
        server.lock = stack.pop_all()
    return server


@contextmanager
def _only_server(model: Path) -> Iterator[None]:
    """Keep other servers away from a model. A folder that is new and stays empty is removed again.

    A model that cannot be written to can have many servers: they learn nothing.
    """
    if model.is_dir() and not os.access(model, os.W_OK):
        yield
        return
    is_new = not model.exists()
    with ExitStack() as stack:
        try:
            stack.enter_context(files.locked(model, SERVER_LOCK))
        except InUseError as error:
            raise UserError("another bic serve has this model open", "stop it") from error
        except BicError as error:
            raise type(error)(error.problem, NOT_WRITABLE) from error
        try:
            yield
        finally:
            if is_new:
                remove_empty(model, SERVER_LOCK)


def _bound_server(
    model: Path, options: ServeOptions, settings: Mapping[str, Any]
) -> StoppableServer:
    folder = open_model(model, device=options.device, trust=options.trust, **settings)
    state = options.state or model.with_name(f"{model.resolve().name}.serve")
    make_private_folder(state)
    listener = _bound(options.host, options.port)
    check, token = open_token(state, renew=options.new_token)
    access = Access(options.host, options.names, check)
    context = Context(folder, settings, state, access, options.limits)
    _raise_file_limit()
    config = uvicorn.Config(
        create_app(context),
        http=PatientProtocol.with_limit(options.limits.header_seconds),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=int(options.limits.header_seconds),
        timeout_graceful_shutdown=int(options.limits.grace_seconds),
    )
    return StoppableServer(config, context, listener, token)


def greeting(address: str, token: str | None) -> list[str]:
    """What is printed at the start. The page takes the token from the address."""
    if token is None:
        return [f"serving at {address} (the token was printed at the first start)"]
    return [
        f"serving at {address}#token={token}",
        f"the token, which is shown only this once: {token}",
    ]


def _refuse_other_folders(model: Path) -> None:
    """Raise UserError for a folder with something that has no versions."""
    if is_versioned(model) or not model.is_dir():
        return
    names = {path.name for path in model.iterdir() if not path.name.startswith(".")}
    others = names - {README, UNFINISHED, WAITING, "files", "versions"}
    if others:
        raise UserError(
            f"{model} is not a model folder: it has {min(others)} and no versions",
            "give a folder that bic learn has written, or a new one",
        )


def _check_settings(model: Path, settings: Mapping[str, Any]) -> None:
    """Raise UserError for settings that a new model cannot have, or that an old one has not."""
    asked = given(settings)
    possible_learning(asked)
    if asked and is_versioned(model):
        learning = consistent(model, lambda root: load_learning(model, live_version(model, root)))
        refuse_changes(asked, learning, model)


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens at the address. Raises UserError if that is not possible."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UserError(f"cannot listen at {host} ({error.strerror})", "change {host}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        problem = f"cannot listen at {host}, port {port} ({error.strerror})"
        raise UserError(problem, "choose another {port} or {host}") from error
    return listener


def _raise_file_limit() -> None:
    """Every connection takes a file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

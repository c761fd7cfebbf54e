"""The token that allows a caller to change the model. Only its hash is stored."""

import hashlib
import hmac
import json
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from bic import files
from bic.errors import UserError
from bic.foreign_files import read_regular_file

TOKEN_FILE = "token.json"
MAX_FILE_BYTES = 4096
WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
MAX_TOKEN = 200  # characters of a token that is looked at


class TokenCheck:
    """Compares tokens with the one whose hash is known, in constant time."""

    def __init__(self, sha256: str) -> None:
        self._expected = sha256.encode()

    def fits(self, token: str) -> bool:
        given = hashlib.sha256(token[:MAX_TOKEN].encode(errors="replace")).hexdigest()
        return hmac.compare_digest(given.encode(), self._expected)


def open_token(state: Path, *, renew: bool = False) -> tuple[TokenCheck, str | None]:
    """The check for the token of a server, and the token itself if it was created just now."""
    path = state / TOKEN_FILE
    if path.exists() and not renew:
        return TokenCheck(_stored_hash(path)), None
    token = secrets.token_urlsafe(32)
    sha256 = hashlib.sha256(token.encode()).hexdigest()
    _write_private(path, files.to_json({"sha256": sha256}))
    return TokenCheck(sha256), token


def _stored_hash(path: Path) -> str:
    try:
        content = json.loads(read_regular_file(path, MAX_FILE_BYTES, follow_links=False))
        sha256 = content["sha256"]
        if not isinstance(sha256, str) or len(sha256) != 64:
            raise ValueError("it holds no hash")
    except files.READ_ERRORS as error:
        raise UserError(
            f"{path} cannot be used ({error})", "make another with {new_token}"
        ) from error
    return sha256


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter. One that exists stays as it is.

    Raises UserError if others can write to it: they could replace the token.
    """
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True)
            folder.chmod(0o700)  # whatever the umask is
        mode = folder.stat().st_mode
    except OSError as error:
        raise files.file_error(error, f"cannot use {folder}", "choose another {state}") from error
    if mode & WRITTEN_BY_OTHERS:
        raise UserError(
            f"other users can write to {folder}",
            "change its mode to 700, or name a new folder inside it with {state}",
        )


def _write_private(path: Path, content: bytes) -> None:
    """Replace a file that only its owner can read, at any moment."""
    temporary = path.with_name(files.TEMPORARY + path.name)
    try:
        with suppress(FileNotFoundError):
            temporary.unlink()
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise files.file_error(error, f"cannot write {path}", "choose another {state}") from error

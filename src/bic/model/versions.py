"""The versions of a model folder: what `live.json` and the manifests say. Imports no torch.

`live.json` is the only file that ever changes. It names the manifest of every version, a manifest
names the files of its version, and every file is named by its checksum.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from bic.errors import UserError
from bic.model.intervals import Drop, Share

FORMAT = 1  # of live.json and of manifests; a newer version of bic writes a higher number
LIVE = "live.json"
VERSIONS = "versions"
UNFINISHED = "unfinished"
FILES = "files"
MAX_NAME = 200  # characters of a class name

Value = TypeVar("Value")


def is_class_name(name: str) -> bool:
    """Whether a text can be the name of a class: printable, no slash, 1 to 200 characters."""
    return bool(
        name.strip() == name
        and 0 < len(name) <= MAX_NAME
        and name.isprintable()
        and not set(name) & {"/", "\\"}
    )


def _class_name(name: str) -> str:
    if not is_class_name(name):
        raise ValueError("not a class name")
    return name


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("not printable")
    return text


ClassName = Annotated[str, AfterValidator(_class_name)]
Text = Annotated[str, AfterValidator(_printable)]
Count = Annotated[int, Field(ge=0, lt=2**60)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Checksum = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Action = Literal["learn", "refuse", "promote", "adopt", "roll back", "retire", "rename", "restore"]


@dataclass(frozen=True)
class StoredFile:
    """A file in `files/`, named by its checksum."""

    sha256: Checksum
    size: Count
    suffix: Annotated[str, Field(pattern=r"^\.[a-z]+$")]

    @property
    def name(self) -> str:
        return f"{FILES}/{self.sha256}{self.suffix}"


@dataclass(frozen=True)
class ClassRecord:
    """One class of a version: the version that added it, and its images.

    `seen` counts the images that it was learned from, `kept` and `held_out` those in the memory.
    `accuracy` is that on the images that were held out when the version was made, of which the
    memory may keep fewer; None if there were none.
    """

    name: ClassName
    added: Count
    seen: Count
    kept: Count = 0
    held_out: Count = 0
    accuracy: Share | None = None
    retired: bool = False
    memory: StoredFile | None = None


@dataclass(frozen=True)
class Verdict:
    """What the held-out images say about a version, compared with the version before it.

    The accuracies are over all classes that each version knows. `restricted_drop` is the drop on
    old classes with answers restricted to old classes, `drop` the one without this restriction.
    `is_judged` is False if there are no held-out images of old classes.
    """

    is_judged: bool
    old_before: Share | None = None
    old_after: Share | None = None
    new_after: Share | None = None
    drop: Drop | None = None
    restricted_drop: Drop | None = None

    def reason(self, max_drop: float) -> str | None:
        """Why the version must not go live, or None if it may.

        Refused only if the whole interval of the drop lies above `max_drop` (in points).
        """
        drop = self.restricted_drop
        if drop is None or 100 * drop.interval[0] <= max_drop:
            return None
        low, high = drop.interval
        return (
            f"the accuracy on old classes fell by {100 * drop.value:.1f} points (95 % interval "
            f"{100 * low:.1f} to {100 * high:.1f}) and may fall by {max_drop:g}"
        )


@dataclass(frozen=True)
class Version:
    """One state of a model: its files, its classes and how it was judged."""

    number: Count
    parent: Count | None
    fingerprint: Text  # of the images that it was learned from
    num_images: Count  # that it was learned from
    files: dict[str, StoredFile]  # by the name that they have in a plain model folder
    learned: tuple[StoredFile, ...]  # digests of the images learned, a file for each learn
    classes: tuple[ClassRecord, ...]
    verdict: Verdict
    format: int = FORMAT

    @property
    def active(self) -> tuple[ClassRecord, ...]:
        return tuple(record for record in self.classes if not record.retired)

    def stored(self) -> Iterator[StoredFile]:
        """All files of the version."""
        yield from self.files.values()
        yield from self.learned
        for record in self.classes:
            if record.memory is not None:
                yield record.memory


@dataclass(frozen=True)
class Manifest:
    """Where the manifest of a version is, and its checksum."""

    number: Count
    sha256: Checksum
    size: Count

    @property
    def name(self) -> str:
        return f"{VERSIONS}/{self.number:04}-{self.sha256[:12]}.json"


@dataclass(frozen=True)
class Event:
    """One line of a model's history. `text` says what happened, `seconds` how long it took."""

    time: Text  # ISO 8601, UTC
    action: Action
    version: Count
    text: Text
    seconds: Finite = 0.0


@dataclass(frozen=True)
class Root:
    """The content of `live.json`: the live version, all kept versions, and the history.

    `candidate` is the number of a version that the gate has refused.
    """

    live: Count
    next: Count
    keep: Annotated[int, Field(ge=1)]
    versions: tuple[Manifest, ...]
    history: tuple[Event, ...] = ()
    candidate: Count | None = None
    refusal: Text = ""  # why the candidate was refused
    format: int = FORMAT
    made_with: Text = ""  # the version of bic that wrote it

    def manifest(self, number: int) -> Manifest | None:
        return next((kept for kept in self.versions if kept.number == number), None)


class DamagedError(UserError):
    """A file of a model folder that is missing or has changed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is damaged ({reason})", "restore it from a copy")
        self.path = path
        self.reason = reason


class MissingError(DamagedError):
    """A file that is not there: it is lost, or another process has just removed it."""


def encoded(value: Root | Version) -> bytes:
    """The file of a root or a version. A checksum in it shows when it was changed by hand."""
    content = json.loads(json.dumps(asdict(value), allow_nan=False))
    content["checksum"] = _checksum(content)
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def decoded(content: bytes, kind: type[Value], path: Path) -> Value:
    """A root or a version from the content of its file. Raises UserError if it is damaged."""
    try:
        found = json.loads(content)
        checksum = found.pop("checksum", None)
        if isinstance(found.get("format"), int) and found["format"] > FORMAT:
            raise UserError(f"{path} was written by a newer version of bic", "upgrade bic")
        if checksum != _checksum(found):
            raise ValueError("its checksum does not fit")
        return TypeAdapter(kind).validate_python(found)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        reason = "its content is not valid" if isinstance(error, ValidationError) else str(error)
        raise DamagedError(path, reason.splitlines()[0]) from error

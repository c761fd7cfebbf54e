"""Decode a list of files in this process, and report or leave out those that cannot be read."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from bic.data.image_files import File, name_of, read
from bic.data.preprocessing import Cut, Preprocessing
from bic.errors import UserError, warn


class Problem(NamedTuple):
    """Why an image cannot be read: its file or shard is `missing`, or its content is broken."""

    reason: str
    missing: bool


# (pixels [n, channels, size, size], files, preprocessing, cuts) → the rows that failed
Fill = Callable[[Tensor, Sequence[File], Preprocessing, Sequence[Cut] | None], dict[int, Problem]]


class Decode(Protocol):
    """The signature of `decode_files` and of the decode pool's `decode_all`."""

    def __call__(
        self,
        files: Sequence[File],
        preprocessing: Preprocessing,
        cuts: Sequence[Cut] | None = None,
        *,
        skip_bad: bool = False,
    ) -> tuple[Tensor, list[int]]: ...


def decode_files(
    files: Sequence[File],
    preprocessing: Preprocessing,
    cuts: Sequence[Cut] | None = None,
    *,
    skip_bad: bool = False,
) -> tuple[Tensor, list[int]]:
    """Pixels [n, channels, size, size] of the readable files, in order, and their positions.

    Raises UserError for a broken file unless `skip_bad`. A missing file always raises it: if a disk
    is disconnected, learning from the remaining files would be wrong.
    """
    return decode_with(fill_rows, files, preprocessing, cuts, skip_bad=skip_bad)


def decode_with(
    fill: Fill,
    files: Sequence[File],
    preprocessing: Preprocessing,
    cuts: Sequence[Cut] | None,
    *,
    skip_bad: bool,
) -> tuple[Tensor, list[int]]:
    """As `decode_files`, but `fill` does the decoding, for example in other processes."""
    if preprocessing.size is None:
        decoded = [_decoded(file, preprocessing) for file in files]
        for file, picture in zip(files, decoded, strict=True):
            if picture.shape != decoded[0].shape:
                shapes = f"{list(picture.shape)}, and another is {list(decoded[0].shape)}"
                raise broken_image(f"{name_of(file)} (it is {shapes})")
        images = torch.stack(decoded)
        layout = torch.channels_last if images.ndim == 4 else torch.contiguous_format
        return images.contiguous(memory_format=layout), list(range(len(files)))
    shape = (len(files), preprocessing.size, preprocessing.size, preprocessing.channels)
    pixels = torch.empty(shape, dtype=torch.uint8).permute(0, 3, 1, 2)
    problems = fill(pixels, files, preprocessing, cuts)
    if not problems:
        return pixels, list(range(len(files)))
    for row, problem in sorted(problems.items()):
        image = f"{name_of(files[row])} ({problem.reason})"
        if problem.missing:
            raise UserError(f"can't read {image}", "put it back and run again")
        if not skip_bad:
            raise broken_image(image)
        warn(f"left out {image}")
    good = [row for row in range(len(files)) if row not in problems]
    return pixels[good], good


def _decoded(file: File, preprocessing: Preprocessing) -> Tensor:
    """A vector, or an image in its own size. Raises UserError if it cannot be read."""
    try:
        return preprocessing.decode(read(file))
    except Exception as error:  # numpy and Pillow raise almost anything
        raise broken_image(f"{name_of(file)} ({reason_of(error)})") from error


def fill_rows(
    pixels: Tensor, files: Sequence[File], preprocessing: Preprocessing, cuts: Sequence[Cut] | None
) -> dict[int, Problem]:
    """Decode files into the rows of pixels [n, channels, size, size]; return the failed rows."""
    problems = {}
    for row, file in enumerate(files):
        try:
            encoded = read(file)
        except Exception as error:  # pyarrow and the system raise many kinds of errors
            problems[row] = Problem(reason_of(error), missing=True)
            continue
        try:
            pixels[row] = preprocessing.decode(encoded, cuts[row] if cuts else None)
        except Exception as error:  # Pillow's decoders raise almost anything
            problems[row] = Problem(reason_of(error), missing=False)
    return problems


def reason_of(error: Exception) -> str:
    """Why an image cannot be read, in words for users."""
    if isinstance(error, UnidentifiedImageError):  # its own message names a BytesIO object
        return "it is not an image"
    if isinstance(error, Image.DecompressionBombError):
        return f"it has more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def broken_image(image: str) -> UserError:
    """The error for an image that cannot be decoded. `image` names it and says why."""
    return UserError(f"can't read {image}", "fix it, or set {skip_bad} to leave it out")

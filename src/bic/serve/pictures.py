"""Thumbnails of the images that a model keeps."""

from collections import OrderedDict
from pathlib import Path
from threading import Lock

from bic.data.small_pictures import small_picture
from bic.learn.memory import TRAIN
from bic.learn.saved_learner import parse_memory
from bic.model.version_files import consistent, live_version, read_stored
from bic.model.versions import Root, StoredFile

MOST_PICTURES = 4  # of a class
MAX_SIDE = 128  # pixels
MAX_CLASSES = 2**31
CACHED = 500  # classes

_cache: OrderedDict[str, list[bytes]] = OrderedDict()
_lock = Lock()


def pictures_of(folder: Path, class_id: str) -> list[bytes]:
    """Small pictures of a class of the live version, as WebP. None if there is no such class.

    `class_id` is the beginning of the checksum of the file with its images.
    """

    def read(root: Root) -> list[bytes]:
        for record in live_version(folder, root).active:
            if record.memory is not None and record.memory.sha256.startswith(class_id):
                return _pictures(folder, record.memory)
        return []

    return consistent(folder, read)


def _pictures(folder: Path, file: StoredFile) -> list[bytes]:
    with _lock:
        if file.sha256 in _cache:
            _cache.move_to_end(file.sha256)
            return _cache[file.sha256]
    table = parse_memory(read_stored(folder, file), MAX_CLASSES)
    pictures: list[bytes] = []
    for part, image in zip(table["part"].to_pylist(), table["image"], strict=True):
        if part == TRAIN and len(pictures) < MOST_PICTURES:
            pictures.append(small_picture(image.as_py(), MAX_SIDE))
    with _lock:
        _cache[file.sha256] = pictures
        while len(_cache) > CACHED:
            _cache.popitem(last=False)
    return pictures

"""Thumbnails of the images that a model keeps."""

from collections import OrderedDict
from pathlib import Path
from threading import Lock

from bic.data.small_pictures import small_picture
from bic.learn.saved_learner import parse_memory
from bic.model.version_files import consistent, live_version, read_stored
from bic.model.versions import Root, StoredFile

MOST_PICTURES = 4  # of a class
MAX_SIDE = 128  # pixels
MAX_CLASSES = 2**31
CACHED = 500  # classes


class Pictures:
    """Small pictures of the classes of a model folder. Those that were asked for last are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: OrderedDict[str, list[bytes]] = OrderedDict()
        self._lock = Lock()

    def of_class(self, class_id: str) -> list[bytes]:
        """Pictures of a class of the live version, as WebP. None if there is no such class.

        `class_id` is the beginning of the checksum of the file with its images.
        """

        def read(root: Root) -> list[bytes]:
            for record in live_version(self.folder, root).active:
                if record.memory is not None and record.memory.sha256.startswith(class_id):
                    return self._of_file(record.memory)
            return []

        return consistent(self.folder, read)

    def clear(self) -> None:
        """Forget all pictures: a class may have been retired."""
        with self._lock:
            self._kept.clear()

    def _of_file(self, file: StoredFile) -> list[bytes]:
        with self._lock:
            if file.sha256 in self._kept:
                self._kept.move_to_end(file.sha256)
                return self._kept[file.sha256]
        table = parse_memory(read_stored(self.folder, file), MAX_CLASSES)
        # Held-out images come last. Some methods keep no others.
        images = table["image"][:MOST_PICTURES]
        pictures = [small_picture(image.as_py(), MAX_SIDE) for image in images]
        with self._lock:
            self._kept[file.sha256] = pictures
            while len(self._kept) > CACHED:
                self._kept.popitem(last=False)
        return pictures

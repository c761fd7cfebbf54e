"""Thumbnails of the images that a model keeps."""

from collections import OrderedDict
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from bic.data.small_pictures import small_pictures
from bic.learn.memory import TRAIN
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
        """Pictures of a class of the live version, as WebP. There are none of an unknown class.

        `class_id` is the beginning of the checksum of the file with its images. Those that cannot
        be shown are left out.
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
        trained = pc.equal(table["part"], TRAIN)
        # Those that are trained on come first. An exact head has held-out images only.
        images = pa.concat_tables([table.filter(trained), table.filter(pc.invert(trained))])
        pictures = small_pictures(images["image"][:MOST_PICTURES].to_pylist(), MAX_SIDE)
        with self._lock:
            self._kept[file.sha256] = pictures
            while len(self._kept) > CACHED:
                self._kept.popitem(last=False)
        return pictures

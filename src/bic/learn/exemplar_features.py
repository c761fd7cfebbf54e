"""What a frozen network computed of exemplars. It is never computed again."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from bic.data.images import Features, ImageSet
from bic.model.frozen_features import key_of

Views = npt.NDArray[np.float16]  # [1 or 2, dim]: of the image, and of the mirrored image
MAX_VIEWS = 2


class ExemplarFeatures:
    """Features of exemplars, by the checksum of the image."""

    def __init__(self) -> None:
        self.views: dict[bytes, Views] = {}

    def of(self, images: Sequence[bytes]) -> Features | None:
        """The features of encoded images, if all of them are known."""
        if not self.views:
            return None
        found = [self.views[key] for key in map(key_of, images) if key in self.views]
        if not found or len(found) < len(images) or len({views.shape for views in found}) > 1:
            return None
        stacked = torch.from_numpy(np.stack(found))
        return Features(stacked[:, 0], stacked[:, 1] if stacked.shape[1] == MAX_VIEWS else None)

    def add(self, images: ImageSet) -> None:
        """Keep the features of images, if they have any."""
        if images.features is None:
            return
        parts = [images.features.plain, images.features.mirrored]
        rows = torch.stack([part for part in parts if part is not None], dim=1).numpy()
        for index, views in enumerate(rows):
            self.views[key_of(images.encoded(index))] = views.copy()

    def keep_only(self, images: Iterable[bytes]) -> None:
        """Forget the features of all other images."""
        if self.views:
            keys = set(map(key_of, images))
            self.views = {key: views for key, views in self.views.items() if key in keys}

    def encoded(self, image: bytes) -> bytes | None:
        """The features of an image as the memory's file has them: their number, and the numbers."""
        views = self.views.get(key_of(image)) if self.views else None
        return None if views is None else bytes([len(views)]) + views.tobytes()

    def load(self, image: bytes, encoded: bytes | None) -> None:
        """Add what `encoded` returned. What cannot be features is left out, and computed again."""
        if not encoded or encoded[0] not in range(1, MAX_VIEWS + 1):
            return
        num_views = encoded[0]
        if len(encoded) == 1 or (len(encoded) - 1) % (2 * num_views):
            return
        views = np.frombuffer(encoded, dtype=np.float16, offset=1).reshape(num_views, -1)
        if np.isfinite(views).all():
            self.views[key_of(image)] = views

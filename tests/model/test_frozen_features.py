"""Features of a frozen network: what they are, and that they are computed once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.frozen import PREPROCESSING, counted_images, frozen_network, squares
from support.pictures import picture, png

from bic.data.images import ImageSet, array_set
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError
from bic.model import frozen_features
from bic.model.feature_folder import FeatureFolder
from bic.model.features import extract
from bic.model.frozen_features import fingerprint, keys_of, with_features
from bic.model.network import Network
from bic.progress import Progress

QUIET = Progress("quiet")


def image_set(count: int = 5) -> ImageSet:
    images, _ = squares("red", count)
    small = array_set(images, np.zeros(count, dtype=np.int64))
    return replace(small, preprocessing=PREPROCESSING)


def test_features_are_those_of_the_network_in_half_precision() -> None:
    network = frozen_network()
    images = image_set()
    featured = with_features(network, images, QUIET, mirrored=True)
    pixels = images.take(images.everything)
    assert pixels.shape == (5, 3, 32, 32)
    assert featured.features is not None
    assert featured.features.mirrored is not None
    for found, shown in (
        (featured.features.plain, pixels),
        (featured.features.mirrored, pixels.flip(3)),
    ):
        assert torch.equal(found, network.features(shown).half())
    assert not torch.equal(featured.features.plain, featured.features.mirrored)


def test_a_set_with_features_gives_them_in_place_of_pixels() -> None:
    network = frozen_network()
    featured = with_features(network, image_set(), QUIET, mirrored=True)
    plain, indices = extract(network, featured, QUIET)
    mirrored, _ = extract(network, featured, QUIET, mirrored=True)
    assert featured.features is not None
    assert featured.features.mirrored is not None
    assert indices.tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(plain, featured.features.plain.float())
    assert torch.equal(mirrored, featured.features.mirrored.float())
    assert featured.encoded(2) == image_set().encoded(2)


def test_kept_features_are_not_computed_again(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = frozen_network()
    cache = FeatureFolder(tmp_path, "network", QUIET)  # type: ignore[arg-type]
    first = with_features(network, image_set(3), QUIET, mirrored=False, cache=cache)
    with counted_images(monkeypatch) as counts:
        again = with_features(network, image_set(3), QUIET, mirrored=False, cache=cache)
        assert counts == []
        both = with_features(network, image_set(3), QUIET, mirrored=True, cache=cache)
        assert counts == [3, 3]  # the mirrored images were missing
    assert first.features is not None
    assert again.features is not None
    assert both.features is not None
    assert torch.equal(first.features.plain, again.features.plain)
    assert torch.equal(first.features.plain, both.features.plain)


def test_broken_files_are_left_out() -> None:
    files = [png(picture(seed, 40, 30)) for seed in range(3)]
    files[1] = b"no image"
    labels = np.array([7, 8, 9])
    images = ImageSet(labels=labels, preprocessing=PREPROCESSING, files=files, skip_bad=True)
    with pytest.warns(UserWarning, match="left out"):
        featured = with_features(frozen_network(), images, QUIET, mirrored=True)
    assert featured.labels.tolist() == [7, 9]
    assert not featured.may_break


def test_keys_depend_on_content_and_shape() -> None:
    wide = array_set(np.zeros((1, 2, 8), dtype=np.uint8), np.zeros(1, dtype=np.int64))
    square = array_set(np.zeros((1, 4, 4), dtype=np.uint8), np.zeros(1, dtype=np.int64))
    other = array_set(np.ones((1, 4, 4), dtype=np.uint8), np.zeros(1, dtype=np.int64))
    keys = {keys_of(images)[0] for images in (wide, square, other)}
    assert len(keys) == 3
    assert keys_of(square) == keys_of(square)


def test_the_fingerprint_is_that_of_everything_but_the_head() -> None:
    network = frozen_network()
    before = fingerprint(network, PREPROCESSING, "float32")
    network.head.grow(3)
    assert fingerprint(network, PREPROCESSING, "float32") == before
    assert fingerprint(network, PREPROCESSING, "bfloat16") != before
    smaller = Preprocessing(channels=3, size=32)
    assert fingerprint(network, smaller, "float32") != before
    with torch.no_grad():
        next(network.backbone.parameters()).add_(1e-6)
    assert fingerprint(network, PREPROCESSING, "float32") != before


def test_features_that_are_no_numbers_are_refused() -> None:
    network = frozen_network()
    network.std.fill_(1e-38)
    with pytest.raises(UserError, match="features are NaN, or too large"):
        with_features(network, image_set(), QUIET, mirrored=False)


def test_a_frozen_network_trains_only_its_head() -> None:
    network = frozen_network()
    network.head.grow(2)
    network.train()
    before = {name: tensor.clone() for name, tensor in network.backbone.state_dict().items()}
    logits = network(torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8))
    logits.sum().backward()
    assert all(parameter.grad is None for parameter in network.backbone.parameters())
    assert network.head.weight.grad is not None
    after = network.backbone.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_folding_changes_features_by_rounding_only() -> None:
    plain = Network("lite0", channels=3, image_size=32).eval()
    plain.prepare(torch.zeros(1))
    frozen = frozen_network()
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        torch.testing.assert_close(frozen.features(images), plain.features(images))
    changed = {name: tensor * 0 for name, tensor in plain.state_dict().items()}
    changed["std"] = torch.ones(3)
    frozen.load_state_dict(changed)  # the folded backbone must follow
    assert frozen.features(images).abs().max() == 0


def test_a_frozen_network_takes_computed_features() -> None:
    network = frozen_network()
    features = torch.rand(2, network.num_features)
    assert network.features(features) is features


@pytest.mark.parametrize("num_threads", [1, 2, 3, 16])
def test_threads_compute_the_features_of_all_images_in_order(
    monkeypatch: pytest.MonkeyPatch, num_threads: int
) -> None:
    monkeypatch.setattr(frozen_features, "PIXELS_AT_ONCE", 3 * 32**2)
    network = frozen_network()
    images = image_set(23)
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        featured = with_features(network, images, QUIET, mirrored=True)
        assert torch.get_num_threads() == num_threads
    finally:
        torch.set_num_threads(before)
    assert featured.features is not None
    assert featured.features.mirrored is not None
    pixels = images.take(images.everything)
    for found, shown in (
        (featured.features.plain, pixels),
        (featured.features.mirrored, pixels.flip(3)),
    ):
        expected = network.features(shown)
        torch.testing.assert_close(found.float(), expected, rtol=2e-3, atol=1e-4)


def test_a_thread_whose_images_are_all_broken_leaves_them_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frozen_features, "PIXELS_AT_ONCE", 2 * 32**2)
    files = [b"no image"] * 4 + [png(picture(seed, 40, 30)) for seed in range(3)]
    images = ImageSet(labels=np.arange(7), preprocessing=PREPROCESSING, files=files, skip_bad=True)
    with pytest.warns(UserWarning, match="left out"):
        featured = with_features(frozen_network(), images, QUIET, mirrored=False)
    assert featured.labels.tolist() == [4, 5, 6]


def test_an_unreadable_image_stops_all_threads() -> None:
    before = torch.get_num_threads()
    files = [png(picture(seed, 40, 30)) for seed in range(9)] + [b"no image"]
    images = ImageSet(labels=np.arange(10), preprocessing=PREPROCESSING, files=files)
    with pytest.raises(UserError, match="can't read"):
        with_features(frozen_network(), images, QUIET, mirrored=False)
    assert torch.get_num_threads() == before

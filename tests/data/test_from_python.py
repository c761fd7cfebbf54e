"""ImageSets from arrays, tensors, PIL images and paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.pictures import ROTATED, jpeg, kinds, orientation, picture, plain_png, png, truncated

from bic.data import from_python
from bic.data.fitting import fitted
from bic.data.from_python import as_image_set, as_model_input, in_memory
from bic.data.images import ImageSet, array_set
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError

GREY = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
RGB = np.stack([GREY, GREY + 50, GREY + 100], axis=-1)


def pixels_of(images: ImageSet) -> torch.Tensor:
    return images.take(images.everything)


@pytest.mark.parametrize(
    ("given", "pixels"),
    [
        (GREY, GREY),
        (GREY[..., None], GREY),
        (GREY.astype(np.int64), GREY),
        (GREY.astype(np.float64), GREY),
        (GREY.astype(np.float16), GREY),
        (GREY.astype(np.float32) / 17, 15 * GREY),  # 255 / 17 = 15
        (GREY[::-1, ::-1], GREY[::-1, ::-1]),
        (np.broadcast_to(GREY[:1], (2, 3, 3)), GREY[[0, 0]]),
        (GREY.tolist(), GREY),
        (list(GREY), GREY),
        (iter(GREY), GREY),
        (torch.from_numpy(GREY), GREY),
        (torch.from_numpy(GREY).to(torch.bfloat16), GREY),
        (torch.from_numpy(GREY).float().requires_grad_(), GREY),
        (list(torch.from_numpy(GREY)), GREY),
    ],
)
def test_grey_images(given: Any, pixels: np.ndarray) -> None:
    images = as_image_set(given)
    assert images.preprocessing == Preprocessing(channels=1, size=3)
    assert images.labels.tolist() == [0, 0]
    taken = pixels_of(images)
    assert taken.dtype == torch.uint8
    assert taken[:, 0].tolist() == pixels.tolist()


@pytest.mark.parametrize("given", [RGB, torch.from_numpy(RGB), RGB / 255, list(RGB)])
def test_rgb_images(given: Any) -> None:
    images = as_image_set(given)
    assert images.preprocessing == Preprocessing(channels=3, size=3)
    assert pixels_of(images).permute(0, 2, 3, 1).tolist() == RGB.tolist()


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.float32, np.float64])
def test_vectors(kind: type) -> None:
    vectors = np.array([[1, 2, 250], [4, 5, 6]], dtype=kind)
    images = as_image_set(vectors)
    assert images.preprocessing == Preprocessing(channels=3)
    assert pixels_of(images).dtype == torch.float32
    assert pixels_of(images).tolist() == vectors.tolist()


def test_arrays_are_resized() -> None:
    wide = np.repeat(np.array([[[10, 20, 30, 40]]], dtype=np.uint8), 2, axis=1)
    images = as_image_set(wide, image_size=2)
    assert images.preprocessing == Preprocessing(channels=1, size=2)
    assert pixels_of(images).tolist() == [[[[20, 30], [20, 30]]]]
    framed = np.zeros((1, 8, 8), dtype=np.uint8)
    framed[:, 2:6, 2:6] = 90
    inner = as_image_set(framed, image_size=2, resize=8)
    assert inner.preprocessing == Preprocessing(channels=1, size=2, resize=8)
    assert pixels_of(inner).tolist() == [[[[90, 90], [90, 90]]]]


def test_a_set_does_not_share_memory_with_the_array() -> None:
    given = GREY.copy()
    images = as_image_set(given)
    given[:] = 0
    assert pixels_of(images)[:, 0].tolist() == GREY.tolist()


def test_an_image_set_is_returned_as_it_is() -> None:
    images = array_set(GREY, np.array([4, 5]))
    assert as_image_set(images) is images
    assert as_image_set(images, image_size=7) is images
    vectors = array_set(np.zeros((2, 5), np.float32), np.array([4, 5]))
    assert as_image_set(vectors, image_size=7) is vectors


def test_labels() -> None:
    images = as_image_set(GREY, labels=np.array([3, 1]))
    assert images.labels.tolist() == [3, 1]
    assert as_image_set(images, labels=np.array([0, 2])).labels.tolist() == [0, 2]
    with pytest.raises(UserError, match="one label per image, got 3 for 2; pass one label"):
        as_image_set(GREY, labels=np.zeros(3, np.int64))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (np.array([GREY, None], dtype=object), r"must be numbers .*, got object \[2\]"),
        (np.array(["a.png"]), r"must be numbers .*, got <U5 \[1\]"),
        (np.full((2, 3, 3), 1j), "must be numbers .*, got complex128"),
        (np.array(3), r"must be numbers .*, got int64 \[\]"),
        (np.zeros(4), r"must be numbers .*, got float64 \[4\]"),
        (np.zeros((2, 3, 3, 4)), r"must be numbers .*, got float64 \[2, 3, 3, 4\]"),
        (np.zeros((2, 3, 8, 8)), r"must be numbers .*, got float64 \[2, 3, 8, 8\]"),
        (np.zeros((1, 2, 3, 3, 3)), "must be numbers .*, got float64"),
        (np.zeros((2, 0, 3)), r"must be numbers .*, got float64 \[2, 0, 3\]"),
        (np.zeros((0, 3, 3)), r"there are no images, got float64 \[0, 3, 3\]"),
        (np.zeros((0, 3)), "there are no images"),
        ([], "there are no images"),
        (np.full((1, 2, 2), np.nan), r"pixels must lie in 0\.\.255.*, got nan"),
        (np.full((1, 2, 2), np.inf), r"pixels must lie in 0\.\.255.*, got 0\.\.inf"),
        (np.full((1, 2, 2), -1), r"pixels must lie in 0\.\.255.*, got -1\.\.0"),
        (np.full((1, 2, 2), 256), r"pixels must lie in 0\.\.255.*, got 0\.\.256"),
        (np.full((1, 2), np.nan), "vectors must be finite"),
        (torch.zeros(2, 3, 8, 8), r"must be numbers .*, got float32 \[2, 3, 8, 8\]"),
        (torch.zeros(2, 3).to_sparse(), "images must be an array of numbers"),
        ([np.zeros((2, 2)), np.zeros((3, 3))], "images must be an array of numbers"),
        ([torch.zeros(2, 2), torch.zeros(3, 3)], "images must be an array of numbers"),
        ([torch.zeros(2, 2), "a.png"], "images must be an array of numbers"),
        ([None, None], "must be numbers .*, got object"),
        ([1, 2], "must be numbers .*, got int64"),
        (7, "images must be an array or a list, got int"),
        (None, "images must be an array or a list, got NoneType"),
        ("a.png", "images must be an array or a list, got a single str; put it in a list"),
        (Path("a.png"), "got a single PosixPath; put it in a list"),
        (Image.new("L", (2, 2)), "got a single Image; put it in a list"),
        ([b"abc"], "must be numbers .*, got |S3"),
    ],
)
def test_anything_else_is_one_sentence(given: Any, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as raised:
        as_image_set(given)
    assert "\n" not in str(raised.value)


def test_vectors_have_no_size() -> None:
    with pytest.raises(UserError, match="vectors have no image size"):
        as_image_set(np.zeros((2, 4)), image_size=8)


@pytest.mark.parametrize(
    "given",
    [
        RGB,
        torch.from_numpy(RGB),
        [Image.fromarray(image) for image in RGB],
        array_set(RGB, np.arange(2)),
    ],
)
def test_any_kind_of_images_becomes_the_input_of_a_model(given: Any) -> None:
    preprocessing = Preprocessing(channels=1, size=3)
    images = as_model_input(given, preprocessing)
    assert images.preprocessing == preprocessing
    expected = [np.asarray(Image.fromarray(image).convert("L")).tolist() for image in RGB]
    assert pixels_of(images)[:, 0].tolist() == expected


def test_the_input_of_a_model_is_scaled_as_its_preprocessing_says() -> None:
    image = picture(3, 64, 64)
    preprocessing = Preprocessing(channels=3, size=24, resize=32)
    expected = preprocessing.decode(png(image))
    from_pillow = as_model_input([image], preprocessing)
    assert torch.equal(pixels_of(from_pillow)[0], expected)
    from_array = as_model_input(np.array(image)[None], preprocessing)
    difference = pixels_of(from_array)[0].int() - expected.int()
    assert difference[:, 2:-2, 2:-2].abs().max() <= 1
    assert from_array.preprocessing == preprocessing


def test_vectors_and_images_are_not_confused() -> None:
    vectors = np.zeros((2, 5))
    assert as_model_input(vectors, Preprocessing(channels=5)).preprocessing.channels == 5
    with pytest.raises(UserError, match="the model takes images, got vectors of 5 numbers"):
        as_model_input(vectors, Preprocessing(channels=3, size=8))
    with pytest.raises(UserError, match="the model takes vectors of 5 numbers, got images"):
        as_model_input(RGB, Preprocessing(channels=5))


# PIL images


def test_pil_images_of_one_size_keep_it() -> None:
    images = as_image_set([Image.fromarray(image) for image in RGB])
    assert images.preprocessing == Preprocessing(channels=3, size=3)
    assert pixels_of(images).permute(0, 2, 3, 1).tolist() == RGB.tolist()
    grey = as_image_set([Image.fromarray(image) for image in GREY])
    assert pixels_of(grey)[:, 0].tolist() == GREY.tolist()
    mixed = as_image_set([Image.fromarray(GREY[0]), Image.fromarray(RGB[0])])
    assert mixed.preprocessing.channels == 3
    assert pixels_of(mixed)[0, :, 1, 1].tolist() == [GREY[0, 1, 1]] * 3


def test_pil_images_of_several_sizes_are_kept_without_loss() -> None:
    originals = [picture(1, 30, 20), picture(2, 20, 50)]
    images = as_image_set(originals)
    assert images.preprocessing == Preprocessing(channels=3, size=64)
    assert images.pixels is None
    for number, original in enumerate(originals):
        preprocessing = Preprocessing(channels=3, size=16, resize=18)
        fit = fitted(images, preprocessing).take(np.array([number]))[0]
        assert torch.equal(fit, preprocessing.decode(png(original)))


def test_pil_images_are_scaled_like_files() -> None:
    originals = [picture(1, 300, 200), picture(2, 20, 50).convert("L")]
    images = as_image_set(originals, image_size=16, resize=18)
    assert images.preprocessing == Preprocessing(channels=3, size=16, resize=18)
    for original, pixels in zip(originals, pixels_of(images), strict=True):
        assert torch.equal(pixels, images.preprocessing.decode(png(original)))
    assert images.pixels is not None
    assert images.pixels.is_contiguous(memory_format=torch.channels_last)


def test_pil_images_are_turned_upright_and_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "turned.png"
    stored = np.array([[10, 20]], dtype=np.uint8)
    Image.fromarray(stored).save(path, exif=orientation(ROTATED))
    with Image.open(path) as image:
        images = as_image_set([image])
        assert image.size == (2, 1)
    assert pixels_of(images).tolist() == [[[[10], [20]]]]


def test_broken_pil_images_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(truncated(jpeg(picture(1, 300, 200))))
    with (
        Image.open(path) as broken,
        pytest.raises(UserError, match=r"can't read image 1 \(.*truncated.*\); fix it, or leave"),
    ):
        as_image_set([Image.new("L", (2, 2)), broken])
    with pytest.raises(UserError, match="image 0 has no pixels; leave it out"):
        as_image_set([Image.new("L", (0, 4))])
    with pytest.raises(UserError, match=r"images must be|must be numbers"):
        as_image_set([Image.new("L", (2, 2)), str(path)])


# Paths


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    paths = []
    for kind, content in kinds(3).items():
        path = tmp_path / f"{kind}.img"
        path.write_bytes(content)
        paths.append(path)
    return paths


def test_paths_are_files_that_are_decoded_when_used(photos: list[Path]) -> None:
    images = as_image_set(photos, image_size=24, resize=30)
    assert as_image_set([str(path) for path in photos]).files == images.files
    assert images.pixels is None
    assert images.preprocessing == Preprocessing(channels=3, size=24, resize=30)
    for path, pixels in zip(photos, pixels_of(images), strict=True):
        assert torch.equal(pixels, images.preprocessing.decode(path.read_bytes()))


def test_grey_files_are_grey_and_files_get_64_pixels(tmp_path: Path) -> None:
    (tmp_path / "grey.png").write_bytes(plain_png(7))
    images = as_image_set([tmp_path / "grey.png"])
    assert images.preprocessing == Preprocessing(channels=1, size=64)
    assert pixels_of(images).eq(7).all()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "it is not an image"), (b"text", "it is not an image"), (None, "No such file or dir")],
)
def test_bad_paths_are_named(photos: list[Path], content: bytes | None, reason: str) -> None:
    if content is None:
        photos[2].unlink()
    else:
        photos[2].write_bytes(content)
    with pytest.raises(UserError, match=rf"can't read .*grey.img \({reason}.*; fix it, or leave"):
        as_image_set(photos)


def test_a_folder_is_not_an_image(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"can't read .* \(Is a directory\)"):
        as_image_set([tmp_path])


def test_files_are_decoded_into_memory(photos: list[Path]) -> None:
    images = as_image_set(photos, image_size=24)
    decoded = in_memory(images)
    assert decoded.files == images.files
    assert decoded.pixels is not None
    assert torch.equal(decoded.pixels, pixels_of(images))
    assert in_memory(decoded) is decoded


def test_too_many_pixels_stay_encoded(photos: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    images = as_image_set(photos, image_size=24)
    monkeypatch.setattr(from_python, "PIXELS_IN_MEMORY", 6 * 3 * 24 * 24 - 1)
    assert in_memory(images) is images


def test_broken_files_are_left_out_of_memory(photos: list[Path]) -> None:
    images = as_image_set(photos, image_size=24, labels=np.arange(6))
    lenient = ImageSet(
        labels=images.labels, preprocessing=images.preprocessing, files=images.files, skip_bad=True
    )
    photos[2].write_bytes(b"")
    with pytest.raises(UserError, match=r"grey\.img"):
        in_memory(images)
    with pytest.warns(UserWarning, match=r"left out .*grey.img"):
        decoded = in_memory(lenient)
    assert decoded.labels.tolist() == [0, 1, 3, 4, 5]
    assert decoded.files == [str(path) for path in photos if path != photos[2]]
    assert decoded.pixels is not None
    assert len(decoded.pixels) == 5

"""Backbones: known numbers of parameters, shapes, ensembles, and backbones of the user's own."""

from pathlib import Path

import pytest
import torch
from torch import nn

from bic import UserError
from bic.model.backbones import BACKBONES, build_backbone
from bic.model.network import Network
from bic.model.pretrained import LITE


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def conv(inputs: int, outputs: int, side: int = 3) -> int:
    """Parameters of a convolution without bias and of the batch-norm after it."""
    return inputs * outputs * side**2 + 2 * outputs


def test_resnet32_has_464_154_parameters() -> None:
    network = Network("resnet32", channels=3, image_size=32)
    network.head.grow(10)
    # 31 convolutions and the head; shortcuts have no parameters.
    expected = conv(3, 16) + 10 * conv(16, 16)
    expected += conv(16, 32) + 9 * conv(32, 32)
    expected += conv(32, 64) + 9 * conv(64, 64)
    expected += 64 * 10 + 10
    assert num_parameters(network) == expected == 464_154
    assert network.num_features == 64


def test_resnet18_has_11_689_512_parameters() -> None:
    network = Network("resnet18", channels=3, image_size=64)
    network.head.grow(1000)
    expected = conv(3, 64, 7) + 4 * conv(64, 64)
    for width in (128, 256, 512):
        expected += conv(width // 2, width) + 3 * conv(width, width) + conv(width // 2, width, 1)
    expected += 512 * 1000 + 1000
    assert num_parameters(network) == expected == 11_689_512
    assert network.num_features == 512


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("backbone", "size"),
    [
        *(("resnet32", 32), ("resnet18", 64), ("fast", 32), ("wide", 32), ("strokes", 28)),
        *(("small", 8), ("mlp", 8)),
    ],
)
def test_backbone_maps_images_to_features(backbone: str, size: int, channels: int) -> None:
    network = Network(backbone, channels=channels, image_size=size).eval()
    network.head.grow(7)
    images = torch.randint(0, 256, (2, channels, size, size), dtype=torch.uint8)
    with torch.no_grad():
        assert network(images).shape == (2, 7)
        assert network.features(images).shape == (2, network.num_features)


def test_mlp_takes_vectors_and_images() -> None:
    vectors = Network("mlp", channels=5, image_size=None).eval()
    vectors.head.grow(3)
    assert vectors(torch.zeros(2, 5)).shape == (2, 3)
    images = Network("mlp", channels=3, image_size=4).eval()
    images.head.grow(3)
    assert images(torch.zeros(2, 3, 4, 4, dtype=torch.uint8)).shape == (2, 3)


def test_resnet32_halves_the_image_twice() -> None:
    backbone = build_backbone("resnet32", channels=3, image_size=32)
    sizes: list[tuple[int, ...]] = []
    for module in backbone.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _, __, out: sizes.append(tuple(out.shape[1:])))
    backbone(torch.zeros(2, 3, 32, 32))
    assert len(sizes) == 31
    assert sizes[:11] == [(16, 32, 32)] * 11
    assert sizes[11:21] == [(32, 16, 16)] * 10
    assert sizes[21:] == [(64, 8, 8)] * 10


def test_members_of_an_ensemble_must_have_the_same_number_of_features() -> None:
    with pytest.raises(
        UserError, match=r"the members of the ensemble small\+mlp have 256, 128 features; choose"
    ):
        Network("small+mlp", channels=1, image_size=8)


@pytest.mark.parametrize("name", ["mlp+", "+mlp", "+"])
def test_both_sides_of_a_plus_must_be_named(name: str) -> None:
    with pytest.raises(UserError, match="lacks a backbone on one side"):
        build_backbone(name, channels=1, image_size=8)


def test_unknown_backbone_suggests_the_closest_name() -> None:
    with pytest.raises(UserError) as caught:
        Network("resnet23", channels=3, image_size=32)
    assert caught.value.problem == "unknown backbone 'resnet23'"
    known = ", ".join([*BACKBONES, *LITE, "hf:NAME", "module:function"])
    assert caught.value.remedy == f"did you mean 'resnet32'? Known: {known}"


def test_vectors_need_the_mlp() -> None:
    with pytest.raises(UserError) as caught:
        Network("resnet32", channels=3, image_size=None)
    assert caught.value.remedy == "use {backbone=mlp} for vectors"


def test_fast_refuses_images_below_9_pixels() -> None:
    with pytest.raises(UserError, match=r'9 pixels.*8.*backbone="small"'):
        Network("fast", channels=3, image_size=8)
    assert Network("fast", channels=3, image_size=9).num_features == 256


OWN = """
from torch import nn

def tiny(channels, image_size):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, 11))

def not_a_module(channels, image_size):
    return "features"

def flat(channels, image_size):
    return nn.Identity()
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the working folder."""
    name = f"own_backbone_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return name


def test_own_backbone_comes_from_the_working_folder(own_module: str) -> None:
    network = Network(f"{own_module}:tiny", channels=2, image_size=3)
    assert network.num_features == 11
    assert num_parameters(network.backbone) == 18 * 11 + 11


@pytest.mark.parametrize("spelling", ["{}:missing", "no_such_module_{}:tiny"])
def test_missing_own_backbone_is_refused(own_module: str, spelling: str) -> None:
    with pytest.raises(UserError, match="cannot be built"):
        Network(spelling.format(own_module), channels=2, image_size=3)


def test_own_backbone_must_be_a_module_that_returns_features(own_module: str) -> None:
    with pytest.raises(UserError, match=r"it returns str, not an nn\.Module"):
        Network(f"{own_module}:not_a_module", channels=2, image_size=3)
    with pytest.raises(UserError, match=r"does not map images \[2, 2, 3, 3\] to features"):
        Network(f"{own_module}:flat", channels=2, image_size=3)

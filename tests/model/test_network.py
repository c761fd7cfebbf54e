"""Backbones with the known numbers of parameters, the growing head, the whitening."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.toy import alone
from torch import Tensor, nn

from bic import UserError
from bic.model.backbones import Whitening, build_backbone
from bic.model.network import Network


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def conv(inputs: int, outputs: int, side: int = 3) -> int:
    """A convolution without bias and the batch-norm after it."""
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
    [("resnet32", 32), ("resnet18", 64), ("fast", 32), ("wide", 32), ("strokes", 28), ("small", 8)],
)
def test_images_become_one_score_a_class(backbone: str, size: int, channels: int) -> None:
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


def test_backbones_side_by_side_answer_with_their_mean() -> None:
    torch.manual_seed(0)
    both = Network("small+small", channels=1, image_size=8).eval()
    both.head.grow(3)
    assert both.num_features == 2 * 256
    images = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
    each = alone(both, 0).eval(), alone(both, 1).eval()
    assert not torch.allclose(each[0](images), each[1](images))
    torch.testing.assert_close(both(images), (each[0](images) + each[1](images)) / 2)
    # In training each has its own logits, of its own batch-norm.
    both.train()
    expected = torch.cat([one.train()(images) for one in each])
    torch.testing.assert_close(both(images), expected)


def test_whitening_is_measured_in_every_backbone() -> None:
    network = Network("fast+fast", channels=1, image_size=32)
    network.prepare(torch.randint(0, 256, (20, 1, 32, 32), dtype=torch.uint8))
    one, other = (module.weight for module in network.modules() if isinstance(module, Whitening))
    assert torch.equal(one, other)
    assert not torch.equal(one, Whitening(1).weight)


def test_backbones_side_by_side_have_as_many_features() -> None:
    with pytest.raises(
        UserError, match=r"equally many features, and those of small\+mlp have 256, 128"
    ):
        Network("small+mlp", channels=1, image_size=8)


@pytest.mark.parametrize("name", ["mlp+", "+mlp", "+"])
def test_both_sides_of_a_plus_are_named(name: str) -> None:
    with pytest.raises(UserError, match="lacks a backbone on one side"):
        build_backbone(name, channels=1, image_size=8)


def test_growing_keeps_the_old_rows() -> None:
    network = Network("mlp", channels=4, image_size=None).eval()
    assert network.num_classes == 0
    network.head.grow(3)
    images = torch.randn(6, 4)
    before = network(images).detach()
    weight = network.head.weight.detach().clone()
    network.head.grow(2)
    assert network.num_classes == 5
    assert torch.equal(network.head.weight[:3], weight)
    torch.testing.assert_close(network(images)[:, :3], before)
    assert network.head.weight.requires_grad
    assert any(parameter is network.head.weight for parameter in network.parameters())
    new = network.head.weight[3:]
    assert 0 < new.detach().abs().min() < new.detach().abs().max() <= 128**-0.5  # as torch's Linear


def shown_to_the_backbone(network: Network, images: Tensor) -> Tensor:
    shown: list[Tensor] = []
    hook = network.backbone.register_forward_pre_hook(lambda _, given: shown.append(given[0]))
    network.eval().features(images)
    hook.remove()
    return shown[0]


def test_normalisation_is_measured_per_channel() -> None:
    network = Network("small", channels=2, image_size=8)
    images = torch.randint(0, 256, (50, 2, 8, 8), generator=torch.Generator().manual_seed(0))
    images[:, 1] = images[:, 1] // 4 + 7
    network.prepare(images.to(torch.uint8))
    values = shown_to_the_backbone(network, images.to(torch.uint8))
    torch.testing.assert_close(values.mean(dim=(0, 2, 3)), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(values.std(dim=(0, 2, 3), correction=0), torch.ones(2))


def test_constant_channel_becomes_zero() -> None:
    network = Network("small", channels=1, image_size=8)
    images = torch.full((3, 1, 8, 8), 77, dtype=torch.uint8)
    network.prepare(images)
    assert shown_to_the_backbone(network, images).abs().max() == 0


def smooth_images(channels: int) -> Tensor:
    """Neighbouring pixels and channels are strongly correlated."""
    noise = torch.randn(200, channels, 12, 12, generator=torch.Generator().manual_seed(1))
    smooth = nn.functional.avg_pool2d(noise, 3, stride=1) * 3 + 0.3 * noise[:, :, 1:-1, 1:-1]
    return smooth + smooth.mean(dim=1, keepdim=True) + 5


@pytest.mark.parametrize("channels", [1, 3])
def test_whitened_patches_are_decorrelated_with_unit_variance(channels: int) -> None:
    whitening = Whitening(channels)
    images = smooth_images(channels)
    whitening.measure(images)
    patches = whitening(images).transpose(0, 1).flatten(1)
    dim = 4 * channels
    assert patches.shape[0] == 2 * dim
    torch.testing.assert_close(torch.cov(patches[:dim]), torch.eye(dim), atol=0.02, rtol=0)
    torch.testing.assert_close(patches[dim:], -patches[:dim])


def test_whitening_is_fixed() -> None:
    network = Network("fast", channels=1, image_size=12)
    images = (20 * smooth_images(1) + 100).clamp(0, 255).to(torch.uint8)
    images = nn.functional.pad(images, (1, 1, 1, 1))
    network.prepare(images)
    network.head.grow(2)
    names = [name for name, _ in network.named_parameters()]
    assert not any("whitening" in name for name in names)
    assert any("whitening" in name for name in network.state_dict())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()(images).sum().backward()
    torch.optim.SGD(network.parameters(), lr=1.0).step()
    changed = {
        name for name, value in network.state_dict().items() if not torch.equal(value, before[name])
    }
    assert "head.weight" in changed
    assert not any("whitening" in name or name in ("mean", "std") for name in changed)


def test_unknown_backbone_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown backbone 'resnet23'; did you mean 'resnet32'"):
        Network("resnet23", channels=3, image_size=32)


def test_vectors_need_the_mlp() -> None:
    with pytest.raises(UserError, match="--backbone mlp"):
        Network("resnet32", channels=3, image_size=None)


def test_images_too_small_for_the_fast_network_are_refused() -> None:
    with pytest.raises(UserError, match=r"9 pixels.*8.*--backbone small"):
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
    name = f"own_backbone_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return name


def test_own_backbone_from_the_working_folder(own_module: str) -> None:
    network = Network(f"{own_module}:tiny", channels=2, image_size=3)
    assert network.num_features == 11
    assert num_parameters(network.backbone) == 18 * 11 + 11


@pytest.mark.parametrize("spelling", ["{}:missing", "no_such_module_{}:tiny"])
def test_own_backbone_that_is_not_there_is_refused(own_module: str, spelling: str) -> None:
    with pytest.raises(UserError, match="cannot be built"):
        Network(spelling.format(own_module), channels=2, image_size=3)


def test_own_backbone_must_be_a_module_that_gives_features(own_module: str) -> None:
    with pytest.raises(UserError, match=r"it gives str, not an nn\.Module"):
        Network(f"{own_module}:not_a_module", channels=2, image_size=3)
    with pytest.raises(UserError, match=r"must map images"):
        Network(f"{own_module}:flat", channels=2, image_size=3)

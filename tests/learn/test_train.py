"""The training loop: rates, batches, augmentation, teacher, and going on bit for bit."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from support.toy import alone
from torch import Tensor, nn

from bic import METHODS, RECIPES, Correction, ImageSet, Recipe
from bic.data.augmentation import crop_and_flip, shift_colours
from bic.data.batches import Batches, ahead, plain_batches
from bic.data.images import array_set
from bic.learn.losses import classification, distillation
from bic.learn.train import Teacher, Training, fit
from bic.model.network import Head, Network


def recipe(**changes: Any) -> Recipe:
    plain = {
        "name": "test",
        "backbone": "small",
        "epochs": 3,
        "batch_size": 8,
        "learning_rate": 0.1,
    }
    return Recipe.model_validate({**plain, **changes})


def numbered_images(count: int, size: int = 1) -> ImageSet:
    """Image i has i in its first pixel and label i % 4."""
    pixels = np.zeros((count, size, size), dtype=np.uint8)
    pixels[:, 0, 0] = np.arange(count)
    return array_set(pixels, np.arange(count, dtype=np.int64) % 4)


def noisy_images(count: int, seed: int = 0) -> ImageSet:
    draws = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int64) % 4
    pixels = draws.integers(0, 100, (count, 8, 8)) + 40 * labels[:, None, None]
    return array_set(pixels.astype(np.uint8), labels)


class Weights(nn.Module):
    """Parameters that do not look at the images; each image's score is their sum."""

    def __init__(self, count: int = 1) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(count, dtype=torch.float64))

    def forward(self, images: Tensor) -> Tensor:
        return self.weights.sum().expand(len(images))


def rates(settings: Recipe, num_images: int) -> list[float]:
    """The rate of every update: with a gradient of one and no momentum, how far a weight moves."""
    module = Weights()
    places: list[float] = []

    def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> dict[str, Tensor]:
        places.append(module.weights.item())
        return {"slope": logits.mean()}

    plain = settings.model_copy(update={"momentum": 0.0, "nesterov": False, "weight_decay": 0.0})
    fit(
        Training.start(module, plain),
        Batches(numbered_images(num_images), plain, (0,)),
        loss,
        plain,
    )
    return (-np.diff([*places, module.weights.item()])).tolist()


def test_rates_of_the_paper() -> None:
    settings = recipe(**{**RECIPES["paper-cifar100"], "crop_padding": 0, "flip": False})
    expected = [0.1] * 100 + [0.01] * 50 + [0.001] * 50 + [0.0001] * 50
    assert rates(settings, 4) == pytest.approx(expected, rel=1e-6)


def test_milestones_scale_with_the_epochs() -> None:
    settings = recipe(
        **{**RECIPES["paper-cifar100"], "crop_padding": 0, "flip": False, "epochs": 25}
    )
    expected = [0.1] * 10 + [0.01] * 5 + [0.001] * 5 + [0.0001] * 5
    assert rates(settings, 4) == pytest.approx(expected, rel=1e-6)


def test_milestones_fall_between_epochs_not_inside() -> None:
    settings = recipe(epochs=4, milestones=(0.5,), decay=0.2, batch_size=8)
    assert rates(settings, 24) == pytest.approx([0.1] * 6 + [0.02] * 6, rel=1e-6)


def test_triangle_goes_up_and_down() -> None:
    settings = recipe(epochs=5, schedule="triangle", warmup=0.2, learning_rate=0.4, batch_size=8)
    # Two updates an epoch, at shares 0.05, 0.15, … 0.95: up over two of them, then down over eight.
    expected = [0.1, 0.3, 0.375, 0.325, 0.275, 0.225, 0.175, 0.125, 0.075, 0.025]
    assert rates(settings, 16) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("num_images", "batch_size", "num_batches"), [(50, 8, 6), (3, 8, 1), (64, 8, 8)]
)
def test_each_image_comes_once_an_epoch(num_images: int, batch_size: int, num_batches: int) -> None:
    batches = Batches(numbered_images(num_images), recipe(batch_size=batch_size), (0, "stage 1", 1))
    seen = list(batches.epoch(0))
    assert len(seen) == len(batches) == num_batches
    pixels = torch.cat([images.flatten() for images, _ in seen])
    assert sorted(pixels.tolist()) == list(range(num_images))
    assert torch.equal(torch.cat([labels for _, labels in seen]), pixels.long() % 4)
    sizes = [len(labels) for _, labels in seen]
    assert max(sizes) - min(sizes) <= 1


def test_each_backbone_side_by_side_learns_as_if_alone() -> None:
    settings = recipe(learning_rate=0.01, weight_decay=5e-4)
    torch.manual_seed(0)
    both = Network("small+small", channels=1, image_size=8)
    both.head.grow(4)
    apart = [alone(both, 0), alone(both, 1)]
    teacher = Teacher(both, None)
    for network in (both, *apart):
        network.head.bias.requires_grad_(False)  # all that they share
        batches = Batches(noisy_images(40), settings, (0,))
        fit(Training.start(network, settings), batches, distils, settings, teacher=teacher)
    for number, lone in enumerate(apart):
        learned = alone(both, number).parameters()
        for ours, theirs in zip(learned, lone.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def distils(logits: Tensor, labels: Tensor, targets: Tensor | None) -> dict[str, Tensor]:
    assert targets is not None
    return {
        "classification": classification(logits, labels),
        "distillation": distillation(logits, targets),
    }


def test_bfloat16_is_what_the_backbone_computes_in_and_nothing_else() -> None:
    settings = recipe(precision="bfloat16", epochs=1)
    network = Network("small", channels=1, image_size=8)
    network.head.grow(4)
    teacher = Teacher(network, Correction(0.9, -1.0, 2))
    seen: dict[str, set[torch.dtype]] = {"inside": set(), "logits": set(), "targets": set()}
    network.backbone.register_forward_hook(lambda _, __, out: seen["inside"].add(out.dtype))

    def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> dict[str, Tensor]:
        assert targets is not None
        seen["logits"].add(logits.dtype)
        seen["targets"].add(targets.dtype)
        return distils(logits, labels, targets)

    fit(
        Training.start(network, settings),
        Batches(noisy_images(16), settings, (0,)),
        loss,
        settings,
        teacher=teacher,
    )
    assert seen == {
        "inside": {torch.bfloat16},
        "logits": {torch.float32},
        "targets": {torch.float32},
    }
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    network.eval()(torch.zeros(2, 1, 8, 8))
    assert seen["inside"] == {torch.bfloat16, torch.float32}  # answers are in float32


def order(batches: Batches, epoch: int) -> list[int]:
    return [int(value) for images, _ in batches.epoch(epoch) for value in images.flatten()]


def test_order_depends_on_address_and_epoch_alone() -> None:
    images = numbered_images(60)
    first = Batches(images, recipe(), (0, "stage 1", 1))
    again = Batches(images, recipe(), (0, "stage 1", 1))
    assert order(first, 4) == order(again, 4) == order(first, 4)  # with no epoch before it
    assert order(first, 5) != order(first, 4)
    for other in [(1, "stage 1", 1), (0, "stage 2", 1), (0, "stage 1", 2)]:
        assert order(Batches(images, recipe(), other), 4) != order(first, 4)


def test_augmentation_depends_on_address_and_epoch_alone() -> None:
    settings = recipe(crop_padding=2, flip=True, brightness=10, contrast=0.3)
    images = noisy_images(32)
    first = [batch for batch, _ in Batches(images, settings, (3,)).epoch(1)]
    torch.manual_seed(99)
    np.random.seed(99)
    again = [batch for batch, _ in Batches(images, settings, (3,)).epoch(1)]
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


def test_plain_batches_keep_order_and_pixels() -> None:
    images = numbered_images(10)
    parts = list(plain_batches(images, batch_size=4))
    assert [indices.tolist() for _, indices in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert torch.cat([pixels.flatten() for pixels, _ in parts]).tolist() == list(range(10))


@pytest.mark.parametrize("flip", [True, False])
def test_crops_are_shifted_and_perhaps_mirrored_images(flip: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (400, 3, 5, 4), generator=generator, dtype=torch.uint8)
    found = crop_and_flip(images, 2, np.random.default_rng(0), flip=flip)
    assert found.dtype == torch.uint8
    counts: dict[tuple[int, int, bool], int] = {}
    for image, result in zip(images, found, strict=True):
        padded = torch.zeros(3, 9, 8, dtype=torch.uint8)
        padded[:, 2:7, 2:6] = image
        matches = []
        for top in range(5):
            for left in range(5):
                crop = padded[:, top : top + 5, left : left + 4]
                matches += [(top, left, False)] if torch.equal(result, crop) else []
                matches += [(top, left, True)] if torch.equal(result, crop.flip(2)) else []
        assert len(matches) == 1
        counts[matches[0]] = counts.get(matches[0], 0) + 1
    assert {(top, left) for top, left, _ in counts} == {
        (top, left) for top in range(5) for left in range(5)
    }
    mirrored = sum(count for (_, _, mirror), count in counts.items() if mirror)
    assert 150 < mirrored < 250 if flip else mirrored == 0


def test_crops_can_be_filled_by_the_mirrored_image() -> None:
    images = torch.arange(25, dtype=torch.uint8).reshape(1, 1, 5, 5).repeat(300, 1, 1, 1)
    found = crop_and_flip(images, 2, np.random.default_rng(0), flip=False, fill="mirror")
    # Moved by two to the right and down, rows and columns 0 and 1 show what lies as far inside.
    row = [2, 1, 0, 1, 2]
    corner = torch.tensor([[5 * y + x for x in row] for y in row], dtype=torch.uint8)
    assert sum(torch.equal(image[0], corner) for image in found) > 300 / 25 / 3
    assert not (found == 0).flatten(1).sum(1).gt(4).any()


def test_colours_shift_within_the_published_ranges() -> None:
    # Half the pixels 118 and half 138: the mean is 128, and nothing can reach 0 or 255.
    images = torch.full((2000, 3, 2, 2), 118, dtype=torch.uint8)
    images[:, :, 0] = 138
    found = shift_colours(images, 63, 0.8, np.random.default_rng(0))
    shifts = found.mean(dim=(2, 3)) - 128
    torch.testing.assert_close(
        shifts, shifts[:, :1].expand(-1, 3), atol=1e-3, rtol=0
    )  # one an image
    assert shifts.abs().max() <= 63
    assert shifts.min() < -60
    assert shifts.max() > 60
    factors = (found[:, :, 0, 0] - found[:, :, 1, 0]) / 20
    assert 0.2 <= factors.min() < 0.22
    assert 1.78 < factors.max() <= 1.8
    assert (factors[:, 0] - factors[:, 1]).abs().mean() > 0.3  # one a channel


def test_colours_stay_pixel_values() -> None:
    images = torch.tensor([0, 255], dtype=torch.uint8).repeat(50, 3, 4, 1)
    found = shift_colours(images, 63, 0.8, np.random.default_rng(0))
    assert found.min() == 0
    assert found.max() == 255


def test_eeil_brings_its_augmentation_and_noise() -> None:
    assert METHODS["eeil"].recipe == {"brightness": 63.0, "contrast": 0.8, "gradient_noise": 0.3}


def plain_loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> dict[str, Tensor]:
    return {"classification": classification(logits, labels)}


def tiny_network(seed: int = 0) -> Network:
    torch.manual_seed(seed)
    network = Network("small", channels=1, image_size=8)
    network.prepare(noisy_images(40).take(np.arange(40)))
    network.head.grow(4)
    return network


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_training_goes_on_bit_for_bit() -> None:
    settings = recipe(
        nesterov=True, weight_decay=5e-4, crop_padding=1, flip=True, gradient_noise=0.3
    )
    batches = Batches(noisy_images(40), settings, (0, "stage 1", 1))
    whole = Training.start(tiny_network(), settings)
    fit(whole, batches, plain_loss, settings)
    assert whole.epoch == 3

    class KilledError(Exception):
        pass

    def kill(*_: object) -> None:
        raise KilledError

    first = Training.start(tiny_network(), settings)
    with pytest.raises(KilledError):
        fit(first, batches, plain_loss, settings, after_epoch=kill)
    assert first.epoch == 1
    saved = save({name: value.detach().contiguous() for name, value in first.tensors().items()})

    second = Training.start(tiny_network(seed=5), settings)
    second.restore(load(saved), epoch=1)
    fit(second, batches, plain_loss, settings)
    assert second.epoch == 3
    assert same(whole.tensors(), second.tensors())
    assert any(name.startswith("momentum.") for name in whole.tensors())
    assert not same(state(first.module), state(second.module))


def test_same_training_twice_and_another_seed() -> None:
    settings = recipe(epochs=1)

    def trained(seed: int) -> dict[str, Tensor]:
        network = tiny_network()
        fit(
            Training.start(network, settings),
            Batches(noisy_images(40), settings, (seed,)),
            plain_loss,
            settings,
        )
        return state(network)

    assert same(trained(0), trained(0))
    assert not same(trained(0), trained(1))


def test_teacher_is_in_evaluation_mode_and_unchanged_by_training() -> None:
    settings = recipe(epochs=2)
    network = tiny_network()
    fit(
        Training.start(network, settings),
        Batches(noisy_images(40), settings, (0,)),
        plain_loss,
        settings,
    )
    assert network.training  # so a teacher that took over the mode would be in training mode
    before = state(network)
    pixels = noisy_images(12, seed=7).take(np.arange(12))
    pair = Correction(alpha=0.5, beta=-1.0, num_old=2)
    teacher = Teacher(network, pair)
    with torch.no_grad():
        expected = pair.apply(tiny_copy(before)(pixels))
    torch.testing.assert_close(teacher(pixels), expected)

    targets: list[Tensor] = []

    def loss(logits: Tensor, labels: Tensor, given: Tensor | None) -> dict[str, Tensor]:
        assert given is not None
        targets.append(given)
        return {
            "distillation": 1e-3 * (logits - given).square().mean(),
            **plain_loss(logits, labels, None),
        }

    student = Training.start(network, settings)
    fit(student, Batches(noisy_images(40), settings, (1,)), loss, settings, teacher=teacher)
    assert not any(given.requires_grad for given in targets)
    assert same(state(teacher.network), before)  # weights and batch-norm statistics
    assert not same(state(network), before)
    assert network.training
    torch.testing.assert_close(teacher(pixels), expected)
    assert all(not module.training for module in teacher.network.modules())


def tiny_copy(tensors: dict[str, Tensor]) -> Network:
    network = tiny_network()
    network.load_state_dict(tensors)
    return network.eval()


def test_gradient_noise_has_the_published_deviation() -> None:
    settings = recipe(epochs=3, batch_size=8, learning_rate=1.0, momentum=1e-12, gradient_noise=0.3)
    module = Weights(200_000)
    places: list[Tensor] = []

    def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> dict[str, Tensor]:
        places.append(module.weights.detach().clone())
        return {"flat": 0 * logits.sum()}

    fit(
        Training.start(module, settings),
        Batches(numbered_images(16), settings, (0,)),
        loss,
        settings,
    )
    places.append(module.weights.detach().clone())
    moves = [after - before for before, after in pairwise(places)]
    deviations = [float(move.std()) for move in moves]
    # Two updates of 8 images an epoch; on gradients summed over the batch, ours are means.
    expected = [0.3 / (1 + epoch) ** 0.55 / 8 for epoch in (0, 0, 1, 1, 2, 2)]
    assert deviations == pytest.approx(expected, rel=0.01)
    assert all(abs(float(move.mean())) < 4 * float(move.std()) / 200_000**0.5 for move in moves)
    assert abs(float(torch.corrcoef(torch.stack(moves[:2]))[0, 1])) < 0.02  # fresh in each update


def test_losses_of_a_batch_are_summed() -> None:
    settings = recipe(epochs=1, learning_rate=1.0)
    module = Weights()

    def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> dict[str, Tensor]:
        return {"one": logits.mean(), "two": 2 * logits.mean()}

    fit(
        Training.start(module, settings),
        Batches(numbered_images(4), settings, (0,)),
        loss,
        settings,
    )
    assert module.weights.item() == -3


def test_weight_decay_and_momentum_are_those_of_sgd() -> None:
    settings = recipe(epochs=2, learning_rate=0.1, momentum=0.5, weight_decay=0.2)
    module = Weights()

    def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> dict[str, Tensor]:
        return {"slope": logits.mean()}

    fit(
        Training.start(module, settings),
        Batches(numbered_images(4), settings, (0,)),
        loss,
        settings,
    )
    first = -0.1 * 1
    velocity = 0.5 * 1 + (1 + 0.2 * first)
    assert module.weights.item() == pytest.approx(first - 0.1 * velocity, rel=1e-12)


@pytest.mark.parametrize("workers", [1, 3, 10])
def test_any_number_of_workers_makes_the_same_batches(workers: int) -> None:
    settings = recipe(crop_padding=2, flip=True, brightness=10, contrast=0.3)
    images = noisy_images(90)
    alone = list(Batches(images, settings, (3,)).epoch(2))
    together = list(Batches(images, settings, (3,), workers=workers).epoch(2))
    for (one, labels), (two, same_labels) in zip(alone, together, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(labels, same_labels)


def test_workers_are_at_most_two_batches_ahead_each() -> None:
    made: list[int] = []

    def make(number: int) -> int:
        made.append(number)
        return number

    batches = ahead([partial(make, number) for number in range(20)], 2)
    for number in range(5):
        assert next(batches) == number
        assert len(made) <= number + 1 + 4
    batches.close()
    assert len(made) < 20


def test_what_a_worker_fails_on_is_raised() -> None:
    def broken() -> int:
        raise ValueError("broken image")

    batches = ahead([lambda: 1, broken, lambda: 3], 1)
    assert next(batches) == 1
    with pytest.raises(ValueError, match="broken image"):
        next(batches)


def trained_network(backbone: str) -> Network:
    """Batch-norm statistics and scales far from those at the start."""
    torch.manual_seed(0)
    network = Network(backbone, channels=3, image_size=32)
    network.head.grow(5)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return network


@pytest.mark.parametrize(
    ("backbone", "left"), [("resnet32", 0), ("resnet18", 0), ("fast", 3), ("small", 0)]
)
def test_teacher_folds_batch_norm_into_convolutions(backbone: str, left: int) -> None:
    network = trained_network(backbone)
    teacher = Teacher(network, None)
    pixels = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        expected = network.eval()(pixels)
    torch.testing.assert_close(
        teacher(pixels), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())
    )
    assert teacher.folded.backbone is not network.backbone
    # In the fast network, batch-norm after pooling cannot be folded: a negative scale turns the maximum round.
    called = [
        node.target for node in teacher.folded.backbone.graph.nodes if node.op == "call_module"
    ]
    assert (
        sum(
            isinstance(teacher.folded.backbone.get_submodule(name), nn.BatchNorm2d)
            for name in called
        )
        == left
    )


class Branching(nn.Module):
    """Cannot be traced: what it does depends on the values it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return (x if x.mean() > 0 else -x).mean(dim=(2, 3))


class Shared(nn.Module):
    """One convolution before two batch-norms: folding either would change the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.one, self.two = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        nn.init.uniform_(self.one.weight)

    def forward(self, x: Tensor) -> Tensor:
        return (self.one(self.conv(x)) + self.two(self.conv(x))).mean(dim=(2, 3))


@pytest.mark.parametrize("backbone", [Branching, Shared])
def test_teacher_of_a_backbone_that_cannot_be_folded(backbone: type[nn.Module]) -> None:
    network = tiny_network()
    network.backbone = backbone()
    network.head = Head(4)
    network.head.grow(3)
    pixels = noisy_images(6).take(np.arange(6))
    with torch.no_grad():
        expected = network.eval()(pixels)
    torch.testing.assert_close(Teacher(network, None)(pixels), expected)


def test_later_steps_have_their_own_rates_and_the_first_its_own_epochs() -> None:
    settings = recipe(epochs=6, first_epochs=9, learning_rate=0.2, muon_rate=0.1, later_rate=0.3)
    first, later = settings.in_step(afresh=True), settings.in_step(afresh=False)
    assert (first.epochs, first.learning_rate, first.muon_rate) == (9, 0.2, 0.1)
    assert (later.epochs, later.learning_rate, later.muon_rate) == pytest.approx((6, 0.06, 0.03))
    by_sgd = settings.model_copy(update={"later_muon": False})
    assert by_sgd.in_step(afresh=True) == first.model_copy(update={"later_muon": False})
    later = by_sgd.in_step(afresh=False)
    assert (later.epochs, later.learning_rate, later.muon_rate) == (6, pytest.approx(0.06), None)
    plain = recipe(epochs=6)
    assert plain.in_step(afresh=True) == plain.in_step(afresh=False) == plain

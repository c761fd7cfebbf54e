"""What each method does inside a step: its phases, exemplars, classifier, and what it starts from."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.toy import toy_dataset
from torch import Tensor

import bic.learn.learner
from bic import METHODS, Correction, Dataset, ImageSet, Learner, MemoryBudget, Model, RunConfig
from bic.data.batches import Batches
from bic.data.images import array_set
from bic.lab.steps import Step, plan_steps
from bic.learn.learner import Checkpoint
from bic.learn.memory import herd
from bic.learn.recipes import make_plan
from bic.model.model import Previous
from bic.model.network import Network
from bic.randomness import seeded

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

ORDER, SIZES = (3, 0, 5, 1, 4, 2), (2, 2, 2)
TRAIN, TEST, BUDGET = 24, 10, 36
FROZEN = {
    "learning_rate": 1e-12,
    "weight_decay": 0.0,
    "epochs": 1,
}  # weights stay what they start from

State = dict[str, Tensor]


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.7, train=TRAIN, test=TEST)


def learner_for(
    dataset: Dataset, method: str, *, choices: dict[str, Any] | None = None, **recipe: Any
) -> Learner:
    config = RunConfig(
        dataset="toy",
        method=method,
        step_sizes=SIZES,
        class_order=ORDER,
        memory=MemoryBudget(images=BUDGET),
        held_out=0.3,
        recipe={"name": "demo", "epochs": 2, "batch_size": 16, **recipe},
        **choices or {},
    )
    return Learner(make_plan(config, dataset), dataset.train.preprocessing)


def steps_of(dataset: Dataset, method: str) -> list[Step]:
    return list(
        plan_steps(dataset, ORDER, SIZES, with_old_data=METHODS[method].sees_old_data != "never")
    )


def pixels_of(images: ImageSet) -> Tensor:
    return images.take(images.everything)


def state_of(learner: Learner) -> State:
    return {name: value.clone() for name, value in learner.model.network.state_dict().items()}


def equal(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) for name, value in one.items()
    )


def normalised(rows: Tensor) -> Tensor:
    """Rows of length one, by hand."""
    return rows / rows.square().sum(dim=1, keepdim=True).sqrt()


@torch.no_grad()
def features_of(learner: Learner, pixels: Tensor) -> Tensor:
    return learner.model.network.eval().features(pixels)


class Watched:
    """Stands in for Batches in the learner, and notes what each phase of each step is trained on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: dict[tuple[Any, ...], Batches] = {}
        monkeypatch.setattr(bic.learn.learner, "Batches", self)

    def __call__(
        self, images: ImageSet, recipe: Any, address: tuple[Any, ...], **_: Any
    ) -> Batches:
        _, phase, step = address
        assert (phase, step) not in self.seen
        return self.seen.setdefault((phase, step), Batches(images, recipe, address))


# What every method must reach


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if name != "lwf"])
def test_an_easy_problem_is_learned(method: str, dataset: Dataset) -> None:
    """Chance is 1 in 6. Only lwf, which keeps no old image, may forget even here."""
    learner = learner_for(dataset, method, epochs=3)
    for step in steps_of(dataset, method):
        learner.learn(step)
    test = dataset.test.of_classes(ORDER)
    _, final = learner.model.logits(pixels_of(test))
    correct = (final.argmax(dim=1) == torch.from_numpy(test.labels)).float()
    assert correct.mean() > 0.8
    for label in range(6):
        assert correct[torch.from_numpy(test.labels == label)].mean() > 0.5


# EEIL's balanced phase


def test_eeil_fine_tunes_in_a_second_phase_from_the_second_step_on(dataset: Dataset) -> None:
    learner = learner_for(dataset, "eeil", epochs=3, balanced_epochs=2)
    for step in steps_of(dataset, "eeil"):
        phases: list[tuple[str, int]] = []
        states: list[State] = []

        def save(checkpoint: Checkpoint, phases: Any = phases, states: Any = states) -> None:
            phases.append((checkpoint.phase, checkpoint.epoch))
            states.append({name: value.clone() for name, value in checkpoint.tensors.items()})

        learner.learn(step, save=save)
        expected = [("stage 1", 1), ("stage 1", 2), ("stage 1", 3)]
        if step.number > 1:
            expected += [("balanced fine-tuning", 1), ("balanced fine-tuning", 2)]
        assert phases == expected
        final = state_of(learner)
        for name in final:
            assert torch.equal(final[name], states[-1][f"module.{name}"])
            if step.number > 1:
                # The teacher is the network as stage 1 left it, the new classes included, and stays so.
                assert torch.equal(states[2][f"module.{name}"], states[3][f"teacher.{name}"])
                assert torch.equal(states[2][f"module.{name}"], states[4][f"teacher.{name}"])
        if step.number > 1:
            for name, _ in learner.model.network.named_parameters():
                assert not torch.equal(states[2][f"module.{name}"], final[name]), name


def test_eeil_fine_tunes_on_equally_many_images_of_every_class(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    learner = learner_for(dataset, "eeil")
    for step in steps_of(dataset, "eeil"):
        old = (
            {image.numpy().tobytes() for image in pixels_of(learner.memory.train_images())}
            if step.number > 1
            else ()
        )
        new = {image.numpy().tobytes() for image in pixels_of(step.train)}
        learner.learn(step)
        stage1 = watched.seen["stage 1", step.number]
        num_old, per_class = (
            2 * step.number - 2,
            BUDGET // (2 * step.number - 2) if step.number > 1 else 0,
        )
        assert np.bincount(stage1.images.labels).tolist() == [per_class] * num_old + [TRAIN] * 2
        assert (("balanced fine-tuning", step.number) in watched.seen) == (step.number > 1)
        if step.number > 1:
            balanced = watched.seen["balanced fine-tuning", step.number]
            assert np.bincount(balanced.images.labels).tolist() == [per_class] * (num_old + 2)
            images = [image.numpy().tobytes() for image in pixels_of(balanced.images)]
            assert len(set(images)) == len(images)
            for image, label in zip(images, balanced.images.labels, strict=True):
                assert image in (old if label < num_old else new)
            assert balanced.recipe.learning_rate == pytest.approx(stage1.recipe.learning_rate / 10)


# iCaRL's classifier


@pytest.mark.parametrize("flip", [False, True])
def test_icarl_answers_with_the_nearest_class_mean(flip: bool, dataset: Dataset) -> None:
    """Mirror images are averaged in where the recipe flips, and only there."""
    learner = learner_for(dataset, "icarl", flip=flip)
    for step in steps_of(dataset, "icarl")[:2]:
        learner.learn(step)
        plain, mirrored = means_by_hand(learner, 2 * step.number)
        means = learner.model.class_means
        assert means is not None
        torch.testing.assert_close(means.norm(dim=1), torch.ones(2 * step.number))
        torch.testing.assert_close(means, mirrored if flip else plain)
        assert not torch.allclose(means, plain if flip else mirrored, atol=1e-3)

        pixels = pixels_of(dataset.test)
        raw, final = learner.model.logits(pixels)
        features = normalised(features_of(learner, pixels))
        nearest = [int((means - feature).norm(dim=1).argmin()) for feature in features]
        assert final.argmax(dim=1).tolist() == nearest
    assert raw.argmax(dim=1).tolist() != nearest  # the head would answer otherwise


def test_icarl_on_vectors_has_no_mirror_images() -> None:
    labels = np.tile(np.arange(6), TRAIN).astype(np.int64)
    vectors = np.random.default_rng(0).normal(size=(len(labels), 5)) + 9 * np.eye(6, 5)[labels]
    dataset = Dataset(
        name="toy",
        classes=tuple("abcdef"),
        train=array_set(vectors, labels),
        test=array_set(vectors, labels),
    )
    learner = learner_for(dataset, "icarl", flip=True)
    learner.learn(steps_of(dataset, "icarl")[0])
    features = [
        normalised(features_of(learner, pixels_of(learner.memory.train_images([label]))))
        for label in (0, 1)
    ]
    means = normalised(torch.stack([own.mean(dim=0) for own in features]))
    torch.testing.assert_close(learner.model.class_means, means)


def means_by_hand(learner: Learner, num_classes: int) -> tuple[Tensor, Tensor]:
    """Each class's mean of normalised features, normalised again: of its exemplars, and with their mirror images."""
    plain, mirrored = [], []
    for label in range(num_classes):
        exemplars = pixels_of(learner.memory.train_images([label]))
        assert len(exemplars) == BUDGET // num_classes
        both = torch.cat([exemplars, torch.from_numpy(exemplars.numpy()[..., ::-1].copy())])
        features = normalised(features_of(learner, both))
        plain.append(features[: len(exemplars)].mean(dim=0))
        mirrored.append(features.mean(dim=0))
    return normalised(torch.stack(plain)), normalised(torch.stack(mirrored))


# Exemplars


def kept_places(learner: Learner, step: Step) -> list[list[int]]:
    """Where the exemplars of a step's classes stand among their class's images, best first."""
    places = []
    for label in sorted(set(step.train.labels.tolist())):
        own = [
            image.tolist()
            for image in pixels_of(step.train)[torch.from_numpy(step.train.labels == label)]
        ]
        places.append(
            [own.index(image.tolist()) for image in pixels_of(learner.memory.train_images([label]))]
        )
    return places


def test_exemplars_are_herded_with_the_new_model(dataset: Dataset) -> None:
    learner = learner_for(dataset, "finetune")
    earlier: list[tuple[Step, list[list[int]]]] = []
    for step in steps_of(dataset, "finetune"):
        learner.learn(step)
        limit = BUDGET // (2 * step.number)
        features = features_of(learner, pixels_of(step.train))
        labels = sorted(set(step.train.labels.tolist()))
        expected = [
            herd(features[torch.from_numpy(step.train.labels == each)], limit).tolist()
            for each in labels
        ]
        found = kept_places(learner, step)
        assert found == expected
        assert all(
            places[: limit // 2] != sorted(places[: limit // 2]) for places in found
        )  # no order of the data's
        for old_step, old_places in earlier:
            assert kept_places(learner, old_step) == [places[:limit] for places in old_places]
        earlier.append((step, found))


def random_places(dataset: Dataset, seed: int, **recipe: Any) -> list[list[int]]:
    """Of both classes of step 1, 18 places, and of those of step 2, 9."""
    learner = learner_for(
        dataset, "finetune", choices={"exemplars": "random", "seed": seed}, epochs=1, **recipe
    )
    places = []
    for step in steps_of(dataset, "finetune")[:2]:
        learner.learn(step)
        places += kept_places(learner, step)
    return places


def test_random_exemplars_are_a_draw_of_their_own(dataset: Dataset) -> None:
    places = random_places(dataset, seed=0)
    assert [len(own) for own in places] == [18, 18, 9, 9]
    for own in places:
        assert len(set(own)) == len(own)
        assert own != sorted(own)
        assert set(own) != set(range(len(own)))
    assert len({tuple(own[:9]) for own in places}) == 4  # every class and step draws anew
    assert random_places(dataset, seed=0) == places
    assert (
        random_places(dataset, seed=0, learning_rate=1e-3) == places
    )  # whatever the network has learned
    assert all(
        ours != others for ours, others in zip(places, random_places(dataset, seed=1), strict=True)
    )


# What a step starts from


def test_joint_starts_afresh_in_each_step(dataset: Dataset) -> None:
    learner = learner_for(dataset, "joint", **FROZEN)
    starts: list[State] = []
    for step in steps_of(dataset, "joint"):
        learner.learn(step)
        with seeded(learner.plan.seed, "weights", step.number):
            fresh = Model.fresh("mlp", dataset.train.preprocessing).network
            fresh.head.grow(2 * step.number)
        found = dict(learner.model.network.named_parameters())
        for name, value in fresh.named_parameters():
            torch.testing.assert_close(
                found[name], value, atol=1e-8, rtol=0, msg=f"{name} of step {step.number}"
            )
        assert step.everything is not None
        torch.testing.assert_close(
            learner.model.network.mean, pixels_of(step.everything).float().mean().view(1)
        )
        starts.append(state_of(learner))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not torch.allclose(
            starts[one]["backbone.1.weight"], starts[other]["backbone.1.weight"], atol=1e-3
        )


def test_fc_retrain_goes_on_from_the_network_of_distill(dataset: Dataset) -> None:
    """The retrained head only evaluates: neither the next step nor its teacher knows of it."""
    distill, retrain = learner_for(dataset, "distill"), learner_for(dataset, "fc-retrain")
    pixels = pixels_of(dataset.test)
    for plain, full in zip(
        steps_of(dataset, "distill"), steps_of(dataset, "fc-retrain"), strict=True
    ):
        distill.learn(plain)
        retrain.learn(full)
        assert equal(state_of(distill), state_of(retrain))
        assert distill.memory.to_table().equals(retrain.memory.to_table())
        raw, answer = distill.model.logits(pixels)
        raw_too, answer_too = retrain.model.logits(pixels)
        assert torch.equal(raw, answer)
        assert torch.equal(raw, raw_too)
        assert answer_too.shape == raw.shape
        assert not torch.allclose(answer_too, raw, atol=1e-2)
        if plain.number < 3:  # images of classes not learned yet are answered somehow
            assert answer_too.argmax(dim=1).tolist() != raw.argmax(dim=1).tolist()


# LwF


def test_lwf_distils_on_new_images_alone(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    plain = METHODS["lwf"]
    terms: list[dict[str, Tensor]] = []
    given: list[Tensor] = []

    def loss(
        logits: Tensor, labels: Tensor, teacher: Tensor | None, classes_per_step: Sequence[int]
    ) -> dict[str, Tensor]:
        terms.append(plain.loss(logits, labels, teacher, classes_per_step))
        given.extend([] if teacher is None else teacher)
        return terms[-1]

    monkeypatch.setitem(METHODS, "lwf", replace(plain, loss=loss))
    learner = learner_for(dataset, "lwf", epochs=1)
    for step in steps_of(dataset, "lwf"):
        terms.clear()
        given.clear()
        before = (
            learner.model.logits(pixels_of(step.train))[0] if step.number > 1 else torch.zeros(0, 0)
        )
        learned = learner.learn(step)
        images = watched.seen["stage 1", step.number].images
        assert torch.equal(pixels_of(images), pixels_of(step.train))
        assert images.labels.tolist() == step.train.labels.tolist()
        assert (learned.num_train, learned.num_exemplars, len(learner.memory)) == (2 * TRAIN, 0, 0)
        assert terms
        for term in terms:
            assert term.keys() == (
                {"classification"} if step.number == 1 else {"classification", "distillation"}
            )
            assert step.number == 1 or term["distillation"].requires_grad
            assert all(value > 0 for value in term.values())
        assert len(given) == (0 if step.number == 1 else 2 * TRAIN)
        if given:  # the teacher's logits are those of the model before the step
            distance = torch.cdist(
                torch.stack(given), before, compute_mode="donot_use_mm_for_euclid_dist"
            )
            assert distance.min(dim=1).values.max() < 1e-4
            assert distance.min(dim=0).values.max() < 1e-4


@pytest.mark.parametrize("method", ["finetune", "icarl", "eeil", "distill", "bic"])
def test_more_images_of_known_classes_join_what_is_learned(dataset: Dataset, method: str) -> None:
    """No new class at all: nothing to correct, and the new images compete for the memory."""
    learner = learner_for(dataset, method)
    first, second, _ = steps_of(dataset, method)
    held_back = first.train.select(first.train.everything[TRAIN:])
    learner.learn(replace(first, train=first.train.select(first.train.everything[:TRAIN])))
    learner.learn(second)
    before = {label: list(one.train) for label, one in learner.memory.classes.items()}
    learned = learner.learn(Step(number=3, classes=(), train=held_back))
    assert learner.model.classes_per_step == (2, 2, 0)
    assert learner.model.correction is None
    assert learned.num_exemplars <= BUDGET
    held_out = len(held_back) - (learned.num_train - sum(map(len, before.values())))
    assert held_out == 0 or method == "bic"
    new_files = {held_back.encoded(index) for index in range(len(held_back))}
    for label, one in learner.memory.classes.items():
        is_known_again = label in (0, 1)
        assert bool(new_files & set(one.train)) == is_known_again
        assert is_known_again or one.train == before[label][: len(one.train)]


@pytest.mark.parametrize("method", ["bic", "joint"])
def test_a_network_that_goes_on_is_slower_and_one_that_starts_afresh_has_its_own_epochs(
    method: str, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[int, float]] = []
    fit = bic.learn.learner.fit

    def watched(training: Any, batches: Any, loss: Any, recipe: Any, **options: Any) -> None:
        used.append((recipe.epochs, recipe.learning_rate))
        fit(training, batches, loss, recipe, **options)

    monkeypatch.setattr(bic.learn.learner, "fit", watched)
    learner = learner_for(dataset, method, learning_rate=0.2, first_epochs=3, later_rate=0.5)
    for step in steps_of(dataset, method)[:2]:
        learner.learn(step)
    assert used == [(3, 0.2), (2, 0.1) if method == "bic" else (3, 0.2)]


def test_the_distilling_loss_can_be_given_a_factor(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, float]] = []

    def watched(training: Any, batches: Any, loss: Any, recipe: Any, **options: Any) -> None:
        logits, labels = (
            torch.randn(4, 4, generator=torch.Generator().manual_seed(0)),
            torch.arange(4),
        )
        teacher = torch.ones(4, 2) if options["teacher"] is not None else None
        seen.append({name: float(term) for name, term in loss(logits, labels, teacher).items()})

    monkeypatch.setattr(bic.learn.learner, "fit", watched)
    for factor in (1.0, 4.0):
        learner = learner_for(dataset, "bic", distillation_factor=factor)
        for step in steps_of(dataset, "bic")[:2]:
            learner.learn(step)
    _, plain, _, stronger = seen
    assert stronger["distillation"] == pytest.approx(4 * plain["distillation"])
    assert stronger["classification"] == plain["classification"]


def test_scores_of_known_classes_are_blended_with_those_of_the_network_before() -> None:
    network = Network("mlp", channels=2, image_size=None)
    network.head.grow(2)
    theirs = torch.tensor([[1.0, 3.0], [0.0, -4.0]])
    network.forward = lambda images: theirs  # type: ignore[method-assign]
    raw = torch.tensor([[10.0, 14.0, 7.0], [2.0, 2.0, 9.0]])
    half = Previous(network, None, 0.5).blended(raw, torch.zeros(2, 2))
    assert half.tolist() == [
        [10.5, 13.5, 7.0],
        [3.0, 1.0, 9.0],
    ]  # theirs about the mean of ours: 11 and 13, 4 and 0
    corrected = Previous(network, Correction(2.0, 1.0, num_old=1), 0.25).blended(
        raw, torch.zeros(2, 2)
    )
    assert corrected.tolist() == [
        [9.75, 14.25, 7.0],
        [2.875, 1.125, 9.0],
    ]  # theirs now 1 and 7, 0 and -7


def test_the_network_before_keeps_its_share_and_is_saved_with_the_model(dataset: Dataset) -> None:
    learner, plain = (learner_for(dataset, "bic", previous_share=share) for share in (0.5, 0.0))
    pixels, taught = pixels_of(dataset.test), []
    for step in steps_of(dataset, "bic"):
        if step.number > 1:
            taught.append(copy.deepcopy((learner.model.network, learner.model.own_correction)))
        learner.learn(step)
        plain.learn(step)
        model = learner.model
        assert all(
            torch.equal(value, plain.model.network.state_dict()[name])
            for name, value in model.network.state_dict().items()
        )  # it has no part in training
        assert model.own_correction == (plain.model.correction if step.number > 1 else None)
        loaded = Model.load(json.loads(json.dumps(model.description())), model.tensors())
        assert torch.equal(loaded.logits(pixels)[1], model.logits(pixels)[1])
        if step.number == 1:
            assert model.previous is None
            continue
        before, own = taught[-1]
        assert model.previous is not None
        assert model.previous.correction == own
        raw, final = model.logits(pixels)
        with torch.no_grad():
            blended = Previous(before, own, 0.5).blended(raw, pixels)
        assert model.correction is not None
        assert torch.equal(final, model.correction.apply(blended))
        assert not torch.equal(final, plain.model.logits(pixels)[1])

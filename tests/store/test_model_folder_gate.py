"""The gate: a version that forgets old classes does not go live."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.taught import images_of, learn, probabilities, toy_model

import bic.learn.step
from bic import Drop, Share, UserError, Verdict
from bic.learn.stage1 import train_network
from bic.model.version_files import read_root

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


@pytest.fixture
def sabotage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training that mistakes every old class for another."""

    def spoilt(lesson: Any, model: Any, *arguments: Any, **options: Any) -> None:
        train_network(lesson, model, *arguments, **options)
        with torch.no_grad():
            model.network.head.weight.neg_()
            model.network.head.bias.neg_()

    monkeypatch.setattr(bic.learn.step, "train_network", spoilt)


def refuse_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing should be trained")

    monkeypatch.setattr(bic.learn.step, "train_network", never)


@pytest.mark.usefixtures("sabotage")
def test_a_sabotaged_version_is_kept_as_a_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy_model(tmp_path / "m")
    with monkeypatch.context() as undisturbed:
        undisturbed.setattr(bic.learn.step, "train_network", train_network)
        learn(model, "ab")
    answers = probabilities(model)
    report = learn(model, "cd")
    assert not report.is_live
    assert report.refusal is not None
    assert report.refusal.startswith("the accuracy on old classes fell by 100.0 points (95 %")
    assert report.refusal.endswith("and may fall by 10")
    assert (model.version, model.versions()) == (1, (1,))
    assert np.array_equal(probabilities(model), answers)
    assert [event.action for event in model.history()] == ["learn", "refuse"]
    with pytest.raises(UserError, match="version 2 was refused by the gate; run the same"):
        model.rollback(2)

    refuse_training(monkeypatch)
    again = learn(model, "cd")
    assert (again.is_live, again.version, again.refusal) == (False, 2, report.refusal)
    promoted = learn(model, "cd", force=True)
    assert (promoted.is_live, promoted.version, promoted.verdict) == (True, 2, report.verdict)
    assert (model.version, model.versions()) == (2, (1, 2))
    assert not np.array_equal(probabilities(model)[:, :2], answers)
    assert model.history()[-1].action == "promote"
    assert model.rollback() == 1


@pytest.mark.usefixtures("sabotage")
def test_promoting_a_candidate_keeps_as_many_versions_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy_model(tmp_path / "m")
    with monkeypatch.context() as undisturbed:
        undisturbed.setattr(bic.learn.step, "train_network", train_network)
        learn(model, "ab")
        learn(model, "c")
    assert not learn(model, "d").is_live
    assert model.check().versions == (1, 2, 3)
    assert not learn(model, "d", keep=1).is_live
    assert model.check().versions == (2, 3)
    assert learn(model, "d", force=True, keep=2).is_live
    assert read_root(tmp_path / "m").keep == 2
    assert model.check().versions == (2, 3)


@pytest.mark.usefixtures("sabotage")
@pytest.mark.parametrize("change", ["retire", "rename"])
def test_a_candidate_whose_classes_changed_is_not_promoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The same images bring a class that the candidate has only as retired, or as another."""
    model = toy_model(tmp_path / "m")
    b = images_of("b")[0]
    with monkeypatch.context() as undisturbed:
        undisturbed.setattr(bic.learn.step, "train_network", train_network)
        model.learn(np.concatenate([images_of("a")[0], b[:16]]), ["a"] * 24 + ["b"] * 16)
    images = np.concatenate([b[16:], images_of("c")[0]])
    names = ["b"] * 8 + ["c"] * 24
    candidate = model.learn(images, names)
    assert (candidate.is_live, candidate.new_classes) == (False, ("c",))
    assert candidate.known_classes == ("b",)
    if change == "retire":
        model.retire("c")
    else:
        model.rename("b", "bee")
    report = model.learn(images, names, force=True)
    assert (report.is_live, report.version) == (True, 3)
    active = {summary.name for summary in model.classes()}
    assert active == ({"a", "b", "c"} if change == "retire" else {"a", "bee", "b", "c"})


@pytest.mark.usefixtures("sabotage")
def test_force_and_a_large_limit_let_a_version_go_live(tmp_path: Path) -> None:
    for number, options in enumerate(({"force": True}, {"max_drop": 100.0})):
        model = toy_model(tmp_path / str(number))
        learn(model, "ab")
        learn(model, "cd", **options)
        assert model.version == 2


@pytest.mark.usefixtures("sabotage")
def test_another_learn_replaces_the_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy_model(tmp_path / "m")
    with monkeypatch.context() as undisturbed:
        undisturbed.setattr(bic.learn.step, "train_network", train_network)
        learn(model, "ab")
    assert [learn(model, classes).version for classes in "cd"] == [2, 3]
    assert model.check().versions == (1, 3)
    monkeypatch.setattr(bic.learn.step, "train_network", train_network)
    assert not learn(model, "d").is_live  # the same images: this is the candidate
    assert learn(model, "e").is_live
    assert model.check().versions == (1, 4)


@pytest.mark.parametrize(("method", "is_judged"), [("bic", True), ("distill", False)])
def test_only_held_out_images_can_judge(tmp_path: Path, method: str, is_judged: bool) -> None:
    model = toy_model(tmp_path / "m", method=method)
    assert not learn(model, "ab").verdict.is_judged  # there is nothing to forget yet
    report = learn(model, "cd")
    assert report.is_live
    assert report.verdict.is_judged == is_judged
    if is_judged:
        assert report.verdict.old_before == Share(14, 14)
        assert report.verdict.new_after is not None
        # New classes hold out as many images as old ones, before the memory is cut.
        assert report.verdict.new_after.total == 14


def test_new_images_of_known_classes_judge_both_versions(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m", memory=200)
    images, names = images_of("ab")
    model.learn(images[:20], names[:20])
    report = model.learn(images[20:], names[20:])
    assert report.new_classes == ()
    assert report.verdict is not None
    assert report.verdict.old_before is not None
    held_out = sum(summary.held_out for summary in model.classes())
    assert report.verdict.old_before.total == held_out
    assert report.verdict.new_after is None


def test_only_a_significant_drop_among_old_classes_is_refused() -> None:
    old = Share(90, 100)

    def verdict(restricted: Drop) -> Verdict:
        drop = Drop(lost=60, gained=0, total=100)
        return Verdict(True, old, Share(30, 100), None, drop=drop, restricted_drop=restricted)

    assert verdict(Drop(5, 5, 100)).reason(10) is None  # 60 points are lost to new classes
    assert verdict(Drop(20, 0, 100)).reason(10) is not None  # 20 points, at least 12.3
    assert verdict(Drop(15, 0, 100)).reason(10) is None  # 15 points, at least 8.1
    assert verdict(Drop(15, 0, 100)).reason(5) is not None
    assert verdict(Drop(6, 0, 20)).reason(10) is None  # 30 points, but only 20 images
    assert Verdict(is_judged=False).reason(0) is None


@pytest.mark.parametrize("options", [{"max_drop": -1.0}, {"max_drop": float("nan")}, {"keep": 0}])
def test_limits_that_make_no_sense(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"max_drop must be from 0 to 100|keep must be 1 or more"):
        learn(toy_model(tmp_path / "m"), "ab", **options)
    assert not (tmp_path / "m").exists()

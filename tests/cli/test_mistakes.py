"""Mistakes on the command line: one sentence, exit code 2, and nothing left behind."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.command_line import Command, assert_refused, write_arrays, write_photos

from bic import RECIPES, Recipe
from bic.learn.moved import MOVED

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

QUICK = ["--epochs", "1", "--quiet"]

# (arguments of `bic run digits`, what the sentence says)
RUN_MISTAKES = [
    ("--method bik", "unknown method 'bik'; did you mean 'bic'?"),
    ("--recipe fats", "unknown recipe 'fats'; did you mean 'fast'?"),
    ("--backbone resnet33", "unknown backbone 'resnet33'; did you mean 'resnet32'?"),
    ("--backbone math:sqrt", "backbone math:sqrt cannot be built"),
    ("--set recipe.learning_rte=1", "did you mean 'recipe.learning_rate'?"),
    ("--set memry=1", "unknown setting 'memry'; did you mean 'memory'?"),
    ("--set nonsense", "NAME=VALUE, got 'nonsense'; write for example --set recipe.learning_rate="),
    ("--set recipe.foo=1", "unknown setting 'recipe.foo'; known: recipe.name"),
    ("--set recipe=5", "recipe"),
    ("--set recipe.learning_rate=inf", "bic: recipe.learning_rate must be a finite number"),
    ("--set recipe.learning_rate=1e300", "recipe.learning_rate must be less than or equal to 1"),
    ("--set recipe.optimiser.weight_decay=1e300", "weight_decay must be less than or equal to 1"),
    ("--set recipe.epochs=9999999999999999999", "recipe.epochs must be less than or equal to 1"),
    ("--set correction_penalty=1e300", "correction_penalty must be less than or equal to 1"),
    ("--set seed=[[[[", "seed must be a valid integer, got '[[[['"),
    ("--set x=[[[[", "unknown setting 'x'"),
    (f"--set x={'[' * 5000}", "unknown setting 'x'"),
    (f"--set {'x.' * 2000}y=1", "unknown setting 'x'"),
    (f"--out {'x' * 300}", "xxx… (File name too long); check the path"),
    (f"--out {'x' * 300}/y", "xxx… (File name too long); check the path"),
    (f"--classes {'x' * 300},b", "digits has no class 'xxx"),
    (f"--config {'x' * 300}", "(File name too long)); check --config"),
    (f"--data {'x' * 300}", "xxx… (File name too long); check the path"),
    ("--backbone os:kill", "backbone os:kill cannot be built (it is a part of Python"),
    ("--backbone os:_exit", "backbone os:_exit cannot be built (it is a part of Python"),
    ("--set memory=100 --set memory.images=100", "memory must be a table"),
    (
        "--set recipe.schedule.milestones=[0.9,0.1]",
        "milestones must rise between 0 and 1, got (0.9, 0.1)",
    ),
    ("--set class_order=[1,2]", "each of 0..9 once, got 2: 1, 2; fix class_order (--set"),
    ("--stepz 5", "Did you mean --steps? Or see bic run --help"),
    ("--epochs 0", "epochs must be greater than or equal to 1, got 0"),
    ("--epochs many", "many"),
    ("--method ridge --random-features 99999", "change --random-features"),
    ("--held-out 1.5", "held_out must be less than 1, got 1.5"),
    ("--memory 19", "(20 images for 10 classes), got 19; raise --memory"),
    ("--memory 500B", "bytes for 10 classes), got 500; raise --memory"),
    ("--memory 5_pounds", "2000 or 64MB"),
    (f"--memory {'9' * 25}", "memory.images must be less than"),
    ("--steps 3", "10 classes cannot be learned in 3 equal steps; use --step-sizes 4,3,3"),
    ("--steps 11", "use fewer --steps"),
    ("--step-sizes 5,4", "add up to 10 classes, got 5,4 (sum 9); change --step-sizes"),
    ("--step-sizes 5,five", "bic: step_sizes must be a valid integer, got 'five';"),
    ("--steps 5 --step-sizes 5,5", "cannot both be given"),
    ("--classes cat", "no class 'cat' among its 10"),
    ("--classes none.txt", "none.txt does not exist"),
    (f"--out {__file__}", "test_mistakes.py is a file and not a folder; choose another --out"),
    ("--config missing.toml", "cannot read missing.toml"),
    ("--config missing.toml", "check --config"),
    ("--device banana", "the device banana is unknown; use cpu or cuda for --device"),
    ("--device cuda:99", "the device cuda:99 cannot be used here"),
    ("--device cuda:99", "leave out --device, or fix that"),
    ("--threads 0", "threads must be from 1 to "),
    ("--threads 5000", " here, got 5,000; use --threads "),
    ("--workers -1", "workers must be from 0 to "),
    ("--label fine", "digits has no label columns; leave out --label fine"),
]

MISTAKES = [
    (
        "run digts",
        "'digts' is neither a data set that bic knows nor an existing path; did you mean 'digits'?",
    ),
    ("run", "dataset"),
    ("run", "; see bic run --help"),
    ("run missing.npz", "missing.npz does not exist; check the path"),
    ("run cifar100", "run `bic data get cifar100`, or pass --data PATH"),
    ("run imagenet1000", "must be downloaded from its owners; download it, then pass --data PATH"),
    ("show nowhere", "nowhere does not exist; give a folder"),
    ("demo --seed -1", "seed must be greater than or equal to 0, got -1"),
    ("data get cifar10", "did you mean 'cifar100'?"),
    ("predict nowhere x.png", "nowhere does not exist; give a folder that bic has written"),
    ("prdict", "prdict"),
    (f"run {'x' * 300}", "xxx… (File name too long); check the path"),
    (f"show {'x' * 300}", "xxx… (File name too long); check the path"),
    (f"report {'x' * 300}", "xxx… (File name too long); check the path"),
    (f"predict {'x' * 300} a.png", "xxx… (File name too long); check the path"),
    ("run \x1b[2J", r"'\x1b[2J' is neither a data set that bic knows"),
    ("show \x1b[2J", r"bic: \x1b[2J does not exist"),
]
MISTAKES += [(f"run digits {arguments}", text) for arguments, text in RUN_MISTAKES]


@pytest.mark.parametrize(("arguments", "text"), MISTAKES)
def test_mistake_gets_one_sentence_and_leaves_nothing_behind(
    bic: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, text: str
) -> None:
    monkeypatch.setenv("BIC_DATA", str(tmp_path / "empty"))
    assert_refused(bic(*arguments.split()), text)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_old_path_of_a_setting_names_the_new_one(bic: Command, old: str, new: str) -> None:
    outcome = bic("run", "digits", "--set", f"{old}=1", "--quiet")
    assert_refused(outcome, f"bic: {old} has moved; use --set {new}=1\n")


def test_other_configuration_for_the_same_folder_is_refused_with_the_differences(
    bic: Command,
) -> None:
    bic("run", "digits", *QUICK, "--out", "here")
    assert_refused(
        bic("run", "digits", "--epochs", "2", "--seed", "3", "--out", "here", "--quiet"),
        "recipe.epochs was 1 and is now 2",
        "seed was 0 and is now 3",
        "; choose another --out",
    )


def test_other_data_under_the_same_name_is_refused(bic: Command, tmp_path: Path) -> None:
    write_arrays(tmp_path / "mine.npz")
    command = ["run", "mine.npz", "--steps", "2", "--backbone", "small", *QUICK, "--out", "here"]
    assert bic(*command).code == 0
    write_arrays(tmp_path / "mine.npz", per_class=15)
    assert_refused(
        bic(*command),
        "the images of mine have changed since here was started; restore them, or choose another "
        "--out",
    )
    assert_refused(bic(*command, "--classes", "0,1"), "classes was None and is now ['0', '1']")


def test_repeating_a_default_is_not_another_configuration(bic: Command) -> None:
    bic("run", "digits", *QUICK, "--out", "here")
    repeated = bic("run", "digits", *QUICK, "--out", "here", "--method", "bic-means", "--seed", "0")
    assert repeated.code == 0


def test_automatic_choice_holds_if_the_default_changes(
    bic: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    bic("run", "digits", *QUICK, "--out", "here")
    other = Recipe.model_validate({**RECIPES["demo"].model_dump(), "learning_rate": 0.01})
    monkeypatch.setitem(RECIPES, "demo", other)
    assert bic("run", "digits", *QUICK, "--out", "here").code == 0


def test_folder_of_a_newer_version_is_refused(bic: Command, tmp_path: Path) -> None:
    bic("run", "digits", *QUICK, "--out", "here")
    config = tmp_path / "here" / "config.json"
    newer = {**json.loads(config.read_text()), "format": 99, "version": "9.0"}
    config.write_text(json.dumps(newer))
    assert_refused(
        bic("run", "digits", *QUICK, "--out", "here"),
        "here was written by a newer version of bic (9.0); upgrade bic",
    )
    assert_refused(bic("show", "here"), "newer version")
    config.write_text(json.dumps({"format": 99, "other": "fields"}))
    assert_refused(bic("show", "here"), "here was written by a newer version of bic (unknown)")


def test_folder_with_other_files_is_not_touched(bic: Command, tmp_path: Path) -> None:
    contents = {"thesis.tex": "…", ".lock": "mine", ".writing-mine": "mine"}
    (tmp_path / "home").mkdir()
    for name, text in contents.items():
        (tmp_path / "home" / name).write_text(text)
    assert_refused(bic("run", "digits", *QUICK, "--out", "home"), "holds other files")
    found = {path.name: path.read_text() for path in (tmp_path / "home").iterdir()}
    assert found == contents


def test_class_with_too_few_images_is_named(bic: Command, tmp_path: Path) -> None:
    labels = np.array([0, 0, 0, 1])
    images = np.zeros((4, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "few.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    command = ["run", "few.npz", "--steps", "2", "--backbone", "small", "--memory", "4", *QUICK]
    assert_refused(
        bic(*command), "class '1' has only 1 training image and bic-means needs two images"
    )


def test_step_with_a_single_image_to_train_on_is_refused(bic: Command, tmp_path: Path) -> None:
    labels = np.repeat(np.arange(3), 2)
    images = np.zeros((6, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "few.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    command = ["run", "few.npz", "--steps", "3", "--backbone", "small", "--memory", "6", *QUICK]
    assert_refused(bic(*command), "every step needs two images to train on")


def test_diverging_training_stops_with_a_remedy(bic: Command) -> None:
    command = ["run", "digits", "--set", "recipe.learning_rate=1e30", "--quiet", "--out", "here"]
    for _ in range(2):  # nothing of it was saved, so the second time is like the first
        assert_refused(
            bic(*command),
            "training diverged in epoch 1; lower recipe.learning_rate "
            "(--set recipe.learning_rate=VALUE)",
        )


@pytest.mark.filterwarnings("always:left out")
def test_broken_image_is_named_and_can_be_skipped(bic: Command, tmp_path: Path) -> None:
    write_photos(tmp_path / "photos")
    (tmp_path / "photos" / "train" / "kind2" / "3.png").write_bytes(b"not an image")
    command = ["run", "photos", "--steps", "2", "--memory", "8", "--backbone", "mlp"]
    command += ["--epochs", "1"]
    assert_refused(bic(*command, "--quiet"), "photos/train/kind2/3.png", "--skip-bad")
    outcome = bic(*command, "--skip-bad")
    assert outcome.code == 0
    assert "left out photos/train/kind2/3.png (it is not an image)" in outcome.err
    assert "left out 1 broken image\n" in outcome.err


@pytest.mark.parametrize(
    ("name", "content"), [("config.json", "{}"), ("result.json", "[]"), ("result.json", "{}")]
)
def test_record_with_odd_content_is_named(
    bic: Command, tmp_path: Path, name: str, content: str
) -> None:
    bic("run", "digits", *QUICK, "--out", "here")
    (tmp_path / "here" / name).write_text(content)
    assert_refused(bic("show", "here"), f"no readable {name}")
    assert_refused(bic("run", "digits", *QUICK, "--out", "here"), f"no readable {name}")

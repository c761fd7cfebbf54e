"""The command line as its user meets it: what it prints, what it refuses, how it exits."""

import csv
import errno
import fcntl
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from bic import RECIPES, UserError, __version__, load_model
from bic.cli import main
from bic.errors import LostError

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

QUICK = ["--epochs", "1", "--quiet"]


@pytest.fixture
def bic(monkeypatch, capsys, tmp_path):
    """Runs a command in an empty folder; gives its exit code, output and error text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() replaces it

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bic", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def write_arrays(path: Path, *, per_class: int = 12, classes: int = 4) -> Path:
    draws = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), per_class)
    images = (draws.integers(0, 60, (len(labels), 8, 8)) + 40 * labels[:, None, None]).astype(
        np.uint8
    )
    np.savez(path, x_train=images, y_train=labels, x_test=images[::3], y_test=labels[::3])
    return path


def write_photos(folder: Path) -> Path:
    draws = np.random.default_rng(1)
    for part, count in (("train", 6), ("test", 2)):
        for number in range(4):
            place = folder / part / f"kind{number}"
            place.mkdir(parents=True)
            for index in range(count):
                pixels = draws.integers(0, 256, (20, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{index}.png")
    return folder


def refused(outcome: tuple[int, str, str], *words: str) -> None:
    """One sentence on standard error, exit code 2, no traceback."""
    code, out, err = outcome
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    assert err.startswith("bic: ")
    assert len(err.strip().splitlines()) == 1
    for word in words:
        assert word in err


def test_a_run_leaves_its_folder_and_does_nothing_the_second_time(bic, tmp_path):
    code, out, _ = bic("run", "digits", *QUICK)
    assert code == 0
    folder = tmp_path / "runs" / "digits-5steps-bic-demo-seed0"
    assert sorted(path.name for path in folder.iterdir() if path.name != ".lock") == [
        "README.txt",
        "config.json",
        "model",
        *(f"predictions-{step}.npz" for step in range(1, 6)),
        "result.json",
    ]
    assert not (folder / "checkpoint").exists()
    described = {line.split()[0] for line in (folder / "README.txt").read_text().splitlines()}
    assert described == {"config.json", "result.json", "predictions-N.npz", "model/", "checkpoint/"}
    result = json.loads((folder / "result.json").read_text())
    assert result["complete"]
    assert f"{result['final_top1']:.2f}" in out
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != ".lock"}
    assert bic("run", "digits", *QUICK)[0] == 0
    assert before == {
        path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != ".lock"
    }
    assert bic("show", folder)[1] == out
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "result.json").write_bytes((folder / "result.json").read_bytes())
    assert bic("show", alone)[1] == out
    assert bic("show", alone / "result.json")[1] == out
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "result.json").write_bytes((folder / "result.json").read_bytes())
    refused(bic("show", tmp_path), "holds several runs; show one of them, such as ", "bic report")


def test_a_second_run_says_that_there_is_nothing_to_do(bic):
    bic("run", "digits", "--epochs", "1", "--out", "here")
    assert (
        "here is complete; nothing to do"
        in bic("run", "digits", "--epochs", "1", "--out", "here")[2]
    )


def test_a_memory_that_a_method_does_not_use_is_said(bic):
    command = ("run", "digits", "--epochs", "1", "--memory", "90", "--method")
    assert "--memory has no effect: lwf keeps no exemplars" in bic(*command, "lwf")[2]
    assert "no effect" not in bic(*command, "distill")[2]


def test_without_a_terminal_there_are_plain_lines(bic):
    code, _, err = bic("run", "digits", "--epochs", "1")
    assert code == 0
    assert "step 5/5: 10 classes, top-1 " in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "digts"], ["unknown data set 'digts'; did you mean 'digits'?"]),
        (["run", "digits", "--method", "bik"], ["unknown method 'bik'; did you mean 'bic'?"]),
        (["run", "digits", "--recipe", "fats"], ["unknown recipe 'fats'; did you mean 'fast'?"]),
        (
            ["run", "digits", "--backbone", "resnet33"],
            ["unknown backbone 'resnet33'; did you mean 'resnet32'?"],
        ),
        (
            ["run", "digits", "--set", "recipe.learning_rte=1"],
            ["did you mean 'recipe.learning_rate'?"],
        ),
        (
            ["run", "digits", "--set", "memry=1"],
            ["unknown setting 'memry'; did you mean 'memory'?"],
        ),
        (["run", "digits", "--set", "nonsense"], ["--set takes NAME=VALUE"]),
        (
            ["run", "digits", "--set", "recipe.foo=1"],
            ["unknown setting 'recipe.foo'; known: recipe.name"],
        ),
        (["run", "digits", "--stepz", "5"], ["--stepz", "; bic run --help tells more"]),
        (["run"], ["dataset", "; bic run --help tells more"]),
        (["run", "digits", "--epochs", "0"], ["epochs must be greater than or equal to 1, got 0"]),
        (["run", "digits", "--epochs", "many"], ["many"]),
        (["run", "digits", "--held-out", "1.5"], ["held_out must be less than 1, got 1.5"]),
        (
            ["run", "digits", "--memory", "19"],
            ["20 images for 10 classes), got 19; raise --memory"],
        ),
        (["run", "digits", "--memory", "500B"], ["bytes for 10 classes), got 500; raise --memory"]),
        (["run", "digits", "--memory", "5 pounds"], ["2000 or 64MB"]),
        (
            ["run", "digits", "--steps", "3"],
            ["10 classes cannot be learned in 3 equal steps", "--step-sizes 4,3,3"],
        ),
        (["run", "digits", "--steps", "11"], ["give fewer --steps"]),
        (["run", "digits", "--step-sizes", "5,4"], ["add up to 10 classes, got 5,4 (sum 9)"]),
        (
            ["run", "digits", "--step-sizes", "5,five"],
            ["bic: step_sizes must be a valid integer, got 'five';"],
        ),
        (["run", "digits", "--steps", "5", "--step-sizes", "5,5"], ["exclude each other"]),
        (
            ["run", "digits", "--set", "class_order=[1,2]"],
            ["class_order must list each of 0..9 once"],
        ),
        (
            ["run", "digits", "--classes", "cat"],
            ["no class 'cat' among its 10; mend --classes (there are 0, 1, 2 and"],
        ),
        (
            ["run", "digits", "--out", __file__],
            ["test_cli.py is a file and not a folder; choose another --out"],
        ),
        (
            ["run", "digits", "--classes", "none.txt"],
            ["classes must name classes, or a file", "no file none.txt"],
        ),
        (
            ["run", "digits", "--set", "recipe.milestones=[0.9,0.1]"],
            ["bic: milestones must rise between 0 and 1"],
        ),
        (
            ["run", "digits", "--config", "missing.toml"],
            ["cannot read missing.toml", "check --config"],
        ),
        (["run", "missing.npz"], ["missing.npz"]),
        (["run", "cifar100"], ["bic data get cifar100", "--data PATH"]),
        (["show", "nowhere"], ["nowhere does not exist; give a folder"]),
        (["run", "digits", "--device", "banana"], ["--device banana is unknown; give cpu or cuda"]),
        (["run", "digits", "--device", "cuda:99"], ["cannot use --device cuda:99 here"]),
        (["run", "digits", "--threads", "0"], ["--threads must be from 1 to "]),
        (["run", "digits", "--threads", "5000"], [" here, got 5,000;"]),
        (["run", "digits", "--workers", "-1"], ["--workers must be from 0 to "]),
        (["run", "digits", "--memory", "9" * 25], ["memory.images must be less than"]),
        (["run", "digits", "--set", "recipe=5"], ["recipe"]),
        (
            ["run", "digits", "--set", "recipe.learning_rate=inf"],
            ["bic: recipe.learning_rate must be a finite number"],
        ),
        (
            ["run", "digits", "--set", "memory=100", "--set", "memory.images=100"],
            ["memory must be a table"],
        ),
        (["run", "digits", "--backbone", "math:sqrt"], ["backbone math:sqrt cannot be built"]),
        (["demo", "--seed", "-1"], ["seed must be greater than or equal to 0, got -1"]),
        (["data", "get", "cifar10"], ["did you mean 'cifar100'?"]),
    ],
)
def test_mistakes_get_one_sentence_and_leave_nothing_behind(
    bic, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.setenv("BIC_DATA", str(tmp_path / "empty"))
    refused(bic(*arguments), *words)
    assert not (tmp_path / "runs").exists()


def test_another_configuration_for_the_same_folder_is_refused_with_the_difference(bic):
    bic("run", "digits", *QUICK, "--out", "here")
    refused(
        bic("run", "digits", "--epochs", "2", "--seed", "3", "--out", "here", "--quiet"),
        "recipe.epochs was 1 and is now 2",
        "seed was 0 and is now 3",
        "choose another --out",
    )


def test_other_data_under_the_same_name_is_refused(bic, tmp_path):
    write_arrays(tmp_path / "mine.npz")
    command = ["run", "mine.npz", "--steps", "2", "--backbone", "small", *QUICK, "--out", "here"]
    assert bic(*command)[0] == 0
    write_arrays(tmp_path / "mine.npz", per_class=15)
    refused(
        bic(*command),
        "the images of mine are not those that here was begun with; put them back as they were",
    )
    refused(bic(*command, "--classes", "0,1"), "classes was None and is now ('0', '1')")


def test_saying_a_default_aloud_is_not_another_configuration(bic):
    bic("run", "digits", *QUICK, "--out", "here")
    assert bic("run", "digits", *QUICK, "--out", "here", "--method", "bic", "--seed", "0")[0] == 0


def test_a_choice_made_automatically_holds_when_the_default_changes(bic, monkeypatch):
    bic("run", "digits", *QUICK, "--out", "here")
    monkeypatch.setitem(RECIPES["demo"], "learning_rate", 0.01)
    assert bic("run", "digits", *QUICK, "--out", "here")[0] == 0


def test_a_folder_of_a_newer_version_is_refused(bic, tmp_path):
    bic("run", "digits", *QUICK, "--out", "here")
    config = tmp_path / "here" / "config.json"
    config.write_text(
        json.dumps({**json.loads(config.read_text()), "format": 99, "version": "9.0"})
    )
    refused(bic("run", "digits", *QUICK, "--out", "here"), "made by a newer version of bic (9.0)")
    refused(bic("show", "here"), "newer version")


def test_a_folder_with_other_files_is_not_touched(bic, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("…")
    (tmp_path / "home" / ".lock").write_text("mine")
    (tmp_path / "home" / ".writing-mine").write_text("mine")
    refused(bic("run", "digits", *QUICK, "--out", "home"), "holds other files")
    assert {path.name: path.read_text() for path in (tmp_path / "home").iterdir()} == {
        "thesis.tex": "…",
        ".lock": "mine",
        ".writing-mine": "mine",
    }


def test_a_folder_in_use_is_refused(bic, tmp_path):
    (tmp_path / "here").mkdir()
    with (tmp_path / "here" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(bic("run", "digits", *QUICK, "--out", "here"), "here is in use by another process")


def test_a_full_disk_leaves_the_previous_checkpoint_good(bic, tmp_path, monkeypatch):
    real, calls = os.fsync, 0

    def fsync(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 60:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    refused(
        bic("run", "digits", *QUICK, "--out", "here"),
        "No space left on device",
        "run the same command again",
    )
    assert not list((tmp_path / "here").rglob(".writing-*"))
    monkeypatch.setattr(os, "fsync", real)
    assert bic("run", "digits", *QUICK, "--out", "here")[0] == 0
    assert bic("run", "digits", *QUICK, "--out", "there")[0] == 0
    results = [
        json.loads((tmp_path / name / "result.json").read_text()) for name in ("here", "there")
    ]
    assert results[0]["final_top1"] == results[1]["final_top1"]


def test_an_unwritable_place_is_refused(bic, tmp_path):
    (tmp_path / "file").write_text("")
    refused(bic("run", "digits", *QUICK, "--out", "file/run"), "cannot write to file/run")


def test_a_class_with_too_few_images_is_named(bic, tmp_path):
    labels = np.array([0, 0, 0, 1])
    images = np.zeros((4, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "few.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    command = ["run", "few.npz", "--steps", "2", "--backbone", "small", "--memory", "4", *QUICK]
    refused(bic(*command), "class '1' has only 1 training image and bic needs two images")


@pytest.mark.filterwarnings("always:left out")
def test_a_broken_image_is_named_and_can_be_skipped(bic, tmp_path):
    write_photos(tmp_path / "photos")
    (tmp_path / "photos" / "train" / "kind2" / "3.png").write_bytes(b"not an image")
    command = [
        "run",
        "photos",
        "--steps",
        "2",
        "--memory",
        "8",
        "--backbone",
        "mlp",
        "--epochs",
        "1",
    ]
    refused(bic(*command, "--quiet"), "photos/train/kind2/3.png", "--skip-bad")
    code, _, err = bic(*command, "--skip-bad")
    assert code == 0
    assert "left out photos/train/kind2/3.png (it is not an image)" in err
    assert "left out 1 broken image\n" in err


def test_a_flag_beats_set_beats_the_file(bic, tmp_path):
    (tmp_path / "mine.toml").write_text(
        'seed = 1\nmemory = 40\nepochs = 3\n[recipe]\nname = "demo"\nlearning_rate = 0.3\n'
    )
    command = [
        "run",
        "digits",
        "--config",
        "mine.toml",
        "--set",
        "seed=2",
        "--set",
        "epochs=2",
        "--epochs",
        "1",
    ]
    assert bic(*command, "--quiet", "--out", "here")[0] == 0
    plan = json.loads((tmp_path / "here" / "config.json").read_text())["plan"]
    assert (plan["seed"], plan["memory"]["images"]) == (2, 40)
    assert (plan["recipe"]["epochs"], plan["recipe"]["learning_rate"]) == (1, 0.3)


def test_a_memory_in_bytes_is_kept(bic, tmp_path):
    assert bic("run", "digits", *QUICK, "--memory", "12KB", "--out", "here")[0] == 0
    images = (
        pq.read_table(tmp_path / "here" / "model" / "memory.parquet").column("image").to_pylist()
    )
    assert 6_000 < sum(map(len, images)) <= 12_000


def test_an_unexpected_failure_exits_with_1_and_no_traceback(bic, monkeypatch):
    monkeypatch.setattr(sys.modules["bic.lab.run"], "make_plan", lambda *_: 1 / 0)
    code, out, err = bic("run", "digits", *QUICK)
    assert (code, out) == (1, "")
    assert err.startswith("bic: failed: ZeroDivisionError")
    assert "BIC_TRACEBACK=1" in err


def test_training_that_diverges_stops_with_the_remedy(bic, tmp_path):
    command = ["run", "digits", "--set", "recipe.learning_rate=1e30", "--quiet", "--out", "here"]
    for _ in range(2):  # nothing of it was saved, so the second time is like the first
        refused(bic(*command), "training diverged in epoch 1; lower recipe.learning_rate")


def test_batches_never_hold_a_single_image(bic):
    assert bic("run", "digits", *QUICK, "--set", "recipe.batch_size=1", "--steps", "2")[0] == 0


def test_a_step_with_a_single_image_to_train_on_is_refused(bic, tmp_path):
    labels = np.repeat(np.arange(3), 2)
    images = np.zeros((6, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "few.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    command = ["run", "few.npz", "--steps", "3", "--backbone", "small", "--memory", "6", *QUICK]
    refused(bic(*command), "every step needs two images to train on")


def test_an_interrupted_command_says_that_it_can_go_on(bic, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bic.learn.learner.fit", interrupt)
    code, _, err = bic("run", "digits", *QUICK)
    assert code == 130
    assert "the same command goes on from here" in err


def test_a_run_without_a_model_yet_is_not_told_to_be_deleted(bic, monkeypatch):
    test_an_interrupted_command_says_that_it_can_go_on(bic, monkeypatch)
    with pytest.raises(UserError, match=r"holds no model yet; .* finish it"):
        load_model("runs/digits-5steps-bic-demo-seed0")


@pytest.mark.parametrize(
    ("name", "content"), [("config.json", "{}"), ("result.json", "[]"), ("result.json", "{}")]
)
def test_a_record_with_odd_contents_is_named(bic, tmp_path, name, content):
    bic("run", "digits", *QUICK, "--out", "here")
    (tmp_path / "here" / name).write_text(content)
    refused(bic("show", "here"), f"no readable {name}")
    refused(bic("run", "digits", *QUICK, "--out", "here"), f"no readable {name}")


def test_names_are_printed_as_they_are(bic, tmp_path):
    write_arrays(tmp_path / "mine.npz")
    command = [
        "run",
        "[/x]",
        "--data",
        "mine.npz",
        "--steps",
        "2",
        "--backbone",
        "small",
        *QUICK,
        "--out",
        "here",
    ]
    code, out, _ = bic(*command)
    assert code == 0
    assert "[/x]" in out
    assert "a:smile:.npz" in bic("run", "a:smile:.npz")[2]


def test_help_teaches_by_example(bic):
    for command in ("", "run", "demo", "show", "report", "data get"):
        code, out, _ = bic(*command.split(), "--help")
        assert code == 0
        assert "bic " in out
    assert "bic run photos/ --step-sizes 50,10,10 --memory 64MB" in bic("run", "--help")[1]


def test_the_installed_command_starts(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bic", "--version"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0
    assert done.stdout.strip() == __version__


def test_the_demo_ends_with_tables_picture_and_paths(bic, tmp_path):
    code, out, _ = bic("demo", "--quiet")
    assert code == 0
    for name in ("finetune", "lwf", "icarl", "eeil", "distill", "bic", "fc-retrain", "joint"):
        assert name in out
    assert "true share" in out
    assert "runs/demo/demo.png" in out
    with Image.open(tmp_path / "runs" / "demo" / "demo.png") as picture:
        assert picture.width > 1000
    results = {
        name: json.loads((tmp_path / "runs" / "demo" / name / "result.json").read_text())
        for name in ("distill", "bic", "fc-retrain", "joint")
    }
    final = {name: result["final_top1"] for name, result in results.items()}
    assert final["bic"] > final["distill"] + 5
    assert final["joint"] > final["fc-retrain"] > final["bic"]


FAILURES = {
    "lost": (
        LostError("another process was lost; run again"),
        "bic: another process was lost; run again",
    ),
    "python": (
        MemoryError("Unable to allocate 8 GiB"),
        "bic: the memory ran out (Unable to allocate 8 GiB); free some",
    ),
    "torch": (
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        "bic: the memory ran out (DefaultCPUAlloc",
    ),
    "other": (
        RuntimeError("broken"),
        "bic: failed: RuntimeError: broken; BIC_TRACEBACK=1 shows where",
    ),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_is_one_sentence_and_exit_code_1(bic, kind: str, monkeypatch):
    error, sentence = FAILURES[kind]

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(sys.modules["bic.lab.run"], "run", fail)
    code, out, said = bic("run", "digits")
    assert (code, out) == (1, "")
    assert said.startswith(sentence)
    assert said.count("\n") == 1


@pytest.mark.filterwarnings("always:left out")
def test_predict_answers_for_image_files(bic, tmp_path, monkeypatch):
    write_photos(tmp_path / "photos")
    assert (
        bic(
            "run",
            "photos",
            "--steps",
            "2",
            "--memory",
            "8",
            "--backbone",
            "small",
            *QUICK,
            "--out",
            "here",
        )[0]
        == 0
    )
    files = sorted(
        str(path.relative_to(tmp_path)) for path in (tmp_path / "photos/test").rglob("*.png")
    )
    code, text, _ = bic("predict", "here", "photos/test", "--top", "2", "--quiet")
    header, *rows = csv.reader(text.splitlines())
    assert (code, header) == (0, ["file", "class_1", "probability_1", "class_2", "probability_2"])
    assert [row[0] for row in rows] == files
    model = load_model(tmp_path / "here")
    for file, *pairs in rows:
        pixels = model.preprocessing.decode((tmp_path / file).read_bytes())
        shares = model.logits(pixels[None])[1].softmax(dim=1)[0]
        best = shares.argsort(descending=True)[:2]
        assert pairs[::2] == [model.classes[place] for place in best]
        assert list(map(float, pairs[1::2])) == pytest.approx(shares[best].tolist(), abs=1e-4)
    monkeypatch.setattr("bic.data.decode_pool.WORTH_IT", 0)
    assert (
        bic("predict", "here", "photos/test", "--top", "2", "--quiet")[1] == text
    )  # decoded by processes
    assert (
        bic("predict", "here/model", files[0], "--out", "answers.csv", "--quiet")[1]
        == "answers: answers.csv\n"
    )
    assert (
        (tmp_path / "answers.csv")
        .read_text()
        .startswith(f"file,class_1,probability_1\n{files[0]},kind")
    )

    refused(bic("predict", "here", "nothing.png"), "nothing.png does not exist; give image files")
    refused(bic("predict", "here", "here"), "here has no images; give image files")
    refused(
        bic("predict", "nowhere", "photos"),
        "nowhere does not exist; give a folder that bic run has made",
    )
    refused(
        bic("predict", "here", "photos", "--top", "9"),
        "--top must be between 1 and the 4 classes, got 9",
    )
    (tmp_path / "photos/test/bad.png").write_bytes(b"")
    refused(
        bic("predict", "here", "photos/test"),
        "can't read photos/test/bad.png (it is not an image)",
        "--skip-bad",
    )
    assert len(
        bic("predict", "here", "photos/test", "--skip-bad", "--quiet")[1].splitlines()
    ) == 1 + len(files)

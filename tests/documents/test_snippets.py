"""Every command and every Python snippet in the README and in the guide runs.

The blocks of a document run in their order, in one folder with small data. Commands are shortened
by SUBSTITUTIONS. A block that cannot run here is marked in the document and listed in NOT_RUN.
"""

import os
import re
import subprocess
import sys
import types
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents.markdown import ROOT, RUN, Block, blocks, name_of
from documents.prepared import prepare

from bic import METHODS, Learner, Learning

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
MAX_METHOD_LINES = 40

# What the documents mark as not run, and why.
NOT_RUN = {
    "README.md": ["installs packages"],
    "docs/guide/backbones.md": ["downloads"],
    "docs/guide/data.md": ["downloads", "needs ImageNet"],
    "docs/guide/serving.md": ["runs until it is stopped", "needs a running server"],
}

SUBSTITUTIONS = (
    (r"--data PATH", "--data cifar.npz"),
    (r"--nproc-per-node 8", "--nproc-per-node 2"),
    (r" --epochs \d+", ""),
    (r"bic run .*", r"\g<0> --epochs 1 --threads 1 --no-compile"),
    (r"bic learn .*", r"\g<0> --epochs 1 --threads 1 --image-size 16"),
)


@pytest.mark.parametrize("document", RUN, ids=name_of)
def test_everything_in_the_document_runs(document: Path, tmp_path: Path) -> None:
    prepare(tmp_path)
    runnable = [block for block in blocks(document) if block.not_run is None]
    for block in runnable:
        if block.file_name is not None:
            (tmp_path / block.file_name).write_text(block.content)
    snippets = [block for block in runnable if block.file_name is None]
    for language, group in groupby(snippets, key=lambda block: block.language):
        if language == "python":
            run_python(list(group), tmp_path)
        if language == "console":
            for block in group:
                run_console(block, tmp_path)


def test_blocks_that_are_not_run_are_listed() -> None:
    marked = {}
    for document in RUN:
        reasons = [block.not_run for block in blocks(document) if block.not_run is not None]
        if reasons:
            marked[name_of(document)] = reasons
    assert marked == NOT_RUN


def test_shortened_commands() -> None:
    command = "bic run cifar100 --data PATH --epochs 20 --out runs/a"
    shortened = "bic run cifar100 --data cifar.npz --out runs/a --epochs 1 --threads 1 --no-compile"
    assert substituted(command) == shortened
    assert substituted("bic show runs/a") == "bic show runs/a"


def test_the_method_in_contributing_works_and_passes_its_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, test, *_ = [block for block in blocks(CONTRIBUTING) if block.language == "python"]
    assert len(source.content.splitlines()) <= MAX_METHOD_LINES
    module = types.ModuleType("bic.learn.methods.level")
    exec(source.content, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(METHODS, "level", module.METHOD)
    tests: dict[str, Any] = {}
    exec(test.content, tests)
    for name in [name for name in tests if name.startswith("test_")]:
        tests[name]()

    draws = np.random.default_rng(0)
    learner = Learner(Learning(method="level", recipe="demo", memory=20))
    for names in (["cat", "dog"], ["fox", "owl"]):
        learner.learn(draws.integers(0, 256, (20, 8, 8), dtype=np.uint8), names * 10)
    bias = learner.model.network.head.bias.detach()
    assert bias[2:].mean() == pytest.approx(bias[:2].mean())


def run_console(block: Block, folder: Path) -> None:
    commands = block.commands()
    assert commands, f"a console block needs a line that starts with $:\n{block.content}"
    for command in commands:
        command.check(run(["bash", "-c", substituted(command.text)], folder))


def run_python(group: list[Block], folder: Path) -> None:
    """Run adjacent snippets in one process. They share no names: each must run as it stands."""
    program = "".join(f"exec({block.content!r}, {{}})\n" for block in group)
    run([sys.executable, "-c", program], folder)


def run(command: list[str], folder: Path) -> str:
    """Standard output and error of a command that must succeed."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "BIC_DATA": str(folder / "cache"),
        "COLUMNS": "80",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def substituted(command: str) -> str:
    for pattern, replacement in SUBSTITUTIONS:
        command = re.sub(pattern, replacement, command)
    return command

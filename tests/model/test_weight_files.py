"""Weights and operations that plain torch runs, without bic."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from documents.markdown import ROOT, blocks
from safetensors.torch import load_file
from support.model_folders import ANSWERS, CLASSES, made_model

from bic import Calibration, Preprocessing, UserError
from bic.model.weight_files import run_operations

PAGE = ROOT / "docs" / "guide" / "export.md"
MAX_LINES = 13  # beside imports, and the last three lines that use them


@pytest.mark.parametrize("kind", ANSWERS)
def test_operations_give_the_logits_of_the_model(kind: str, tmp_path: Path) -> None:
    model = made_model(kind, "small")
    model.retired = (2,)
    model.calibration = Calibration(1.5, (0.5,), 1)
    model.export(tmp_path / "weights", safetensors=True)
    config = json.loads((tmp_path / "weights" / "config.json").read_text())
    weights = load_file(tmp_path / "weights" / "weights.safetensors")
    images = torch.randint(0, 256, (30, 1, 8, 8), dtype=torch.uint8)
    logits = run_operations(config, weights, images)
    torch.testing.assert_close(logits, model.logits(images)[1], rtol=1e-4, atol=1e-4)
    assert config["labels"] == list(CLASSES)
    assert (config["retired"], config["temperature"]) == ([2], 1.5)
    assert config["preprocessing"] == asdict(model.preprocessing)
    assert "network.head.weight" in weights or kind in ("nearest mean", "retrained", "ridge")


def test_lines_of_the_document_load_them_without_bic(tmp_path: Path) -> None:
    (program,) = [
        block.content
        for block in blocks(PAGE)
        if "config.json" in block.content and "def " in block.content
    ]
    lines = [line for line in program.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("import", "from"))]
    assert len(lines) - 3 <= MAX_LINES
    model = made_model("blended", "small", Preprocessing(channels=3, size=16))
    model.export(tmp_path / "shop-weights", safetensors=True)
    images = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8)
    np.save(tmp_path / "images.npy", images.numpy())
    check = (
        f"{program}\nimport sys, numpy\n"
        "numpy.save('logits.npy', logits(torch.from_numpy(numpy.load('images.npy'))))\n"
        "assert 'bic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", check], cwd=tmp_path, check=True)
    expected = model.logits(images)[1]
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), expected, rtol=1e-4, atol=1e-4)


def test_operations_that_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    class Odd(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.nan_to_num(images.flatten(1), nan=0.0).to(torch.complex64).abs().float()

    model = made_model()
    model.network.backbone = Odd()
    model.network.head.weight = torch.nn.Parameter(torch.ones(5, 64))
    model.export(tmp_path / "weights", safetensors=True)

    class Infinite(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1).clamp(max=float("inf"))

    model.network.backbone = Infinite()
    with pytest.raises(UserError, match="which a list of operations cannot hold"):
        model.export(tmp_path / "other", safetensors=True)

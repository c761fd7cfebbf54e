"""Small, randomly initialised vision models of transformers, saved to folders."""

import json
from pathlib import Path

import torch
from transformers import (
    AutoModel,
    ConvNextConfig,
    Dinov2Config,
    PretrainedConfig,
    ResNetConfig,
    SwinConfig,
    ViTConfig,
)

SIZE = 32
SMALL = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}

PROCESSOR = {
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.25, 0.5, 0.5],
    "resample": 2,
    "size": {"height": SIZE, "width": SIZE},
}


def config_of(kind: str) -> PretrainedConfig:
    if kind == "vit":
        return ViTConfig(**SMALL, intermediate_size=32, image_size=SIZE, patch_size=8)
    if kind == "dinov2":
        return Dinov2Config(**SMALL, image_size=28, patch_size=14)
    if kind == "convnext":
        return ConvNextConfig(hidden_sizes=[4, 8, 12, 16], depths=[1, 1, 1, 1])
    if kind == "resnet":
        return ResNetConfig(embedding_size=4, hidden_sizes=[8, 16], depths=[1, 1])
    return SwinConfig(
        embed_dim=8, depths=[1, 1], num_heads=[1, 2], image_size=SIZE, patch_size=4, window_size=4
    )


def saved_model(folder: Path, kind: str = "vit") -> str:
    """Save a small model, and return its name as a backbone."""
    torch.manual_seed(0)
    model = AutoModel.from_config(config_of(kind))
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return f"hf:{folder}"

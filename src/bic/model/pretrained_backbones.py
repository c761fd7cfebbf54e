"""Pretrained backbones by name, and the preprocessing that they bring."""

import torch
from torch import nn

from bic.data.preprocessing import Preprocessing
from bic.model.hugging_face import Config, HuggingFace, hugging_face, hugging_face_input
from bic.model.lite import VARIANTS, lite, lite_input
from bic.model.pretrained import LITE, Pretrained, is_pretrained

Configs = dict[str, Config]  # of the models of transformers in a network, by their names


def build_pretrained(
    name: str, channels: int, image_size: int, *, weights: bool, configs: Configs
) -> nn.Module:
    """A pretrained backbone, with its weights unless `weights` is false.

    `configs` has the configurations of a saved model: what is in it is built without its source.
    """
    weights = weights and torch.get_default_device().type != "meta"
    if name in LITE:
        return lite(name, channels, image_size, weights=weights)
    return hugging_face(name, channels, image_size, weights=weights, config=configs.get(name))


def configs_of(name: str, backbone: nn.Module) -> Configs:
    """What `build_pretrained` needs to build a backbone again without its source."""
    parts = name.split("+")
    members = [backbone] if len(parts) == 1 else list(backbone.get_submodule("members").children())
    configs = {}
    for part, member in zip(parts, members, strict=True):
        if isinstance(member, HuggingFace):
            configs[part] = member.config
    return configs


def preprocessing_for(
    name: str, image_size: int | None, resize: int | None
) -> Preprocessing | None:
    """The preprocessing of a new model with a pretrained backbone.

    None for all other backbones: they take images as they are.
    """
    if not is_pretrained(name):
        return None
    known = pretrained_input(name)
    if image_size is None:
        image_size = known.size
        resize = resize or known.resize
    return Preprocessing(channels=3, size=image_size, resize=resize, bicubic=known.bicubic)


def pretrained_input(name: str) -> Pretrained:
    """What a pretrained backbone, or the first member of an ensemble, asks of its images."""
    first = name.partition("+")[0]
    return lite_input(VARIANTS[first]) if first in LITE else hugging_face_input(first)

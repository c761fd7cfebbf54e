"""Vision models of Hugging Face transformers as backbones, from a folder or from the hub.

No code of a model is ever run: its configuration must be one that transformers knows, and weights
are read from safetensors files only.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bic.compute.seeding import seeded
from bic.errors import BicError, UserError
from bic.foreign_files import read_json_file
from bic.model.pretrained import HUGGING_FACE, Pretrained, missing_extra
from bic.text import printable

CONFIG = "config.json"
PROCESSOR = "preprocessor_config.json"
HUB_NAME = r"[\w.-]+(/[\w.-]+)?"
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
DEFAULT_SIZE = 224
BICUBIC = 3  # the number of this interpolation in Pillow
MAX_SIZE = 8192  # pixels
MAX_NUMBER = 1_000_000  # of a whole number in a configuration
MAX_LAYERS = 512
MAX_REASON = 200  # characters of another library's error
MAX_DEPTH = 8  # of tables inside tables
# Parts of a configuration that could load code or other weights, or that only name labels.
LEFT_OUT = (
    *("architectures", "attn_implementation", "auto_map", "custom_pipelines", "dtype"),
    *("experts_implementation", "id2label", "label2id", "num_labels", "quantization_config"),
    *("torch_dtype", "transformers_version", "use_kernels"),
)
# Tensors that are missing from good checkpoints and play no part in features.
UNUSED = ("pooler", "mask_token")

Config = dict[str, Any]


class HuggingFace(nn.Module):
    """A model of transformers that maps images to features [batch, dim].

    Features are the class token, or the mean over tokens or over space.
    """

    def __init__(self, model: nn.Module, config: Config, pretrained: Pretrained | None) -> None:
        super().__init__()
        vision = getattr(model, "vision_model", model)
        pooler = getattr(vision, "pooler", None)
        if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
            vision.pooler = None  # a learned pooling belongs to a classifier
        names = [name.rpartition(".")[2] for name, _ in vision.named_parameters()]
        self.model = vision
        self.config = config
        self.pretrained = pretrained
        self.has_class_token = "cls_token" in names or "class_embedding" in names
        accepted = inspect.signature(vision.forward).parameters
        self.options: dict[str, Any] = {}
        if "interpolate_pos_encoding" in accepted:
            self.options["interpolate_pos_encoding"] = True

    def forward(self, images: Tensor) -> Tensor:
        outputs = self.model(pixel_values=images, **self.options)
        last: Tensor = outputs.last_hidden_state
        if last.ndim == 4:
            pooled: Tensor | None = getattr(outputs, "pooler_output", None)
            return last.mean(dim=(2, 3)) if pooled is None else pooled.flatten(1)
        return last[:, 0] if self.has_class_token else last.mean(dim=1)


def hugging_face(
    name: str, channels: int, image_size: int, *, weights: bool, config: Config | None
) -> HuggingFace:
    """The backbone `hf:NAME_OR_FOLDER`; with `config`, that of a saved model and without weights.

    Raises UserError for a folder without such a model and for weights that do not fit.
    """
    if channels != 3:
        raise UserError(
            f"the network {name} takes images with 3 channels, got {channels}",
            "convert them to RGB, or choose another {backbone}",
        )
    if config is not None:
        with _reporting(name, "a model of transformers"):
            return HuggingFace(_fresh(safe_config(config)), safe_config(config), None)
    found = read_config(name)
    if not weights:
        with _reporting(name, "a model of transformers"):
            return HuggingFace(_fresh(found), found, hugging_face_input(name))
    return HuggingFace(_loaded(name, found), found, hugging_face_input(name))


def hugging_face_input(name: str) -> Pretrained:
    """What a model asks of its images, by the file of its image processor."""
    config = read_config(name)
    try:
        settings = read_json_file(_file(name, PROCESSOR))
    except FileNotFoundError:
        settings = {}
    except (OSError, ValueError) as error:
        raise _refused(name, f"its {PROCESSOR} cannot be read", error) from error
    try:
        return _input(dict(settings), config)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise _refused(name, f"its {PROCESSOR} cannot be used", error) from error


def _input(settings: Config, config: Config) -> Pretrained:
    """The settings of an image processor, for pixels from 0 to 255."""
    scale = float(settings.get("rescale_factor", 1 / 255)) if settings.get("do_rescale", 1) else 1.0
    mean = tuple(settings.get("image_mean") or IMAGENET_MEAN)
    std = tuple(settings.get("image_std") or IMAGENET_STD)
    if not settings.get("do_normalize", True):
        mean = (0.0,) * 3
        std = (1.0,) * 3
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0 or not scale > 0:
        raise ValueError(f"it has the mean {mean} and the std {std}")
    resize = _side(settings.get("size")) or _side(config.get("image_size")) or DEFAULT_SIZE
    size = resize
    if settings.get("do_center_crop") and settings.get("crop_size"):
        size = _side(settings["crop_size"]) or resize
    if not 1 <= size <= MAX_SIZE or not 1 <= resize <= MAX_SIZE:
        raise ValueError(f"images have {size} pixels a side")
    return Pretrained(
        mean=tuple(float(value) / scale for value in mean),
        std=tuple(float(value) / scale for value in std),
        size=size,
        resize=resize if resize > size else None,
        bicubic=settings.get("resample", BICUBIC) == BICUBIC,
    )


def _side(size: Any) -> int | None:
    """The side of square images. Transformers has five ways to write it."""
    if isinstance(size, Mapping):
        size = size.get("shortest_edge") or size.get("height")
    if isinstance(size, list | tuple):
        size = size[0]
    return None if size is None else int(size)


def read_config(name: str) -> Config:
    """The configuration of a model, without what could load code."""
    try:
        return safe_config(read_json_file(_file(name, CONFIG)))
    except FileNotFoundError as error:
        raise _refused(name, f"it has no {CONFIG}", error) from error
    except (OSError, ValueError, TypeError) as error:
        raise _refused(name, f"its {CONFIG} cannot be used", error) from error


def safe_config(config: Any, depth: int = 0) -> Config:
    """A configuration without what could load code. Raises ValueError for enormous numbers."""
    if not isinstance(config, Mapping) or depth > MAX_DEPTH:
        raise ValueError("it is not a table of settings")
    kept: Config = {}
    for key, value in config.items():
        if key in LEFT_OUT or str(key).startswith("_"):
            continue
        _refuse_enormous(str(key), value)
        kept[key] = safe_config(value, depth + 1) if isinstance(value, Mapping) else value
    return kept


def _refuse_enormous(key: str, value: Any) -> None:
    """Raise ValueError for a number from which a huge network would be built."""
    numbers = value if isinstance(value, list | tuple) else [value]
    is_depth = "layer" in key or "depth" in key
    for number in numbers:
        if not isinstance(number, int | float) or isinstance(number, bool):
            continue
        largest = MAX_LAYERS if is_depth else MAX_NUMBER
        if not abs(number) <= largest or len(numbers) > MAX_LAYERS:
            raise ValueError(f"{printable(key)} is {number}")


def _file(name: str, file: str) -> Path:
    """The path of a file of a model. It is downloaded if the model is on the hub."""
    source = name.removeprefix(HUGGING_FACE)
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder / file
    if not re.fullmatch(HUB_NAME, source) or source.startswith("."):
        raise UserError(f"{source} does not exist", "give a folder, or a name such as owner/model")
    transformers = _transformers()
    try:
        found = transformers.utils.cached_file(
            source, file, _raise_exceptions_for_missing_entries=False
        )
    except Exception as error:  # of the network, of the hub or of its cache
        raise UserError(
            f"{source} is no folder here and cannot be downloaded ({_reason(error)})",
            "check the name and the network, or give a folder with the model",
        ) from error
    if found is None:
        raise FileNotFoundError(file)
    return Path(found)


def _fresh(config: Config) -> nn.Module:
    """A model without weights, from its configuration."""
    transformers = _transformers()
    kinds = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    kind = config.get("model_type")
    if kind not in kinds:
        raise ValueError(f"transformers knows no model type {printable(str(kind))!r}")
    settings = kinds[kind].from_dict(config)
    with _silent(transformers), seeded("hugging face"):
        model: nn.Module = transformers.AutoModel.from_config(settings, trust_remote_code=False)
    return model.eval().float()


def _loaded(name: str, config: Config) -> nn.Module:
    """A model with its weights, which must be in safetensors files."""
    transformers = _transformers()
    source = name.removeprefix(HUGGING_FACE)
    folder = Path(source).expanduser()
    is_local = folder.is_dir()
    with _reporting(name, "weights in safetensors that fit its configuration"):
        kinds = transformers.models.auto.configuration_auto.CONFIG_MAPPING
        kind = config.get("model_type")
        if kind not in kinds:
            raise ValueError(f"transformers knows no model type {printable(str(kind))!r}")
        with _silent(transformers), seeded("hugging face"):
            model, report = transformers.AutoModel.from_pretrained(
                str(folder) if is_local else source,
                config=kinds[kind].from_dict(config),
                trust_remote_code=False,
                use_safetensors=True,
                local_files_only=is_local,
                output_loading_info=True,
                dtype=torch.float32,
            )
        missing = sorted(key for key in report["missing_keys"] if not _is_unused(key))
        if missing:
            raise ValueError(f"{len(missing)} tensors are missing, such as {missing[0]}")
    module: nn.Module = model.eval()
    return module


def _is_unused(key: str) -> bool:
    return any(part in UNUSED for part in key.split("."))


def _transformers() -> Any:
    try:
        import transformers
        import transformers.models.auto.configuration_auto
    except ImportError as error:
        raise missing_extra("the package transformers is", "hf") from error
    return transformers


@contextmanager
def _silent(transformers: Any) -> Iterator[None]:
    """Keep transformers from printing."""
    logging = transformers.utils.logging
    before = logging.get_verbosity()
    has_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if has_bars:
            logging.enable_progress_bar()


@contextmanager
def _reporting(name: str, wanted: str) -> Iterator[None]:
    """Turn any exception of transformers into a UserError."""
    try:
        yield
    except (BicError, MemoryError):
        raise
    except Exception as error:
        raise _refused(name, f"it does not hold {wanted}", error) from error


def _refused(name: str, problem: str, error: Exception) -> UserError:
    return UserError(
        f"{printable(name)} cannot be used: {problem} ({_reason(error)})",
        "give the folder or the name of a vision model of transformers",
    )


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return printable(lines[0])[:MAX_REASON]

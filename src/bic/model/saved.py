"""Models on disk: `model.json` and `weights.safetensors`. Everything in them is checked."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bic import files
from bic.errors import BicError, UserError
from bic.foreign_files import parse_json, refuse_unpacking
from bic.model.backbones import is_imported
from bic.model.build import PREVIOUS, ModelDescription, build_model
from bic.model.format_1 import from_format_1
from bic.model.model import Model, Tensors
from bic.model.pretrained_backbones import configs_of
from bic.model.tensor_files import read_tensors, refuse_odd_numbers, write_tensors
from bic.model.version_files import has_lost_root, is_versioned, read_live

# Of model.json. 1 had a correction, class means or a head in place of an answer; 2 had no frozen
# backbones.
FORMAT = 3
DESCRIPTION = "model.json"
WEIGHTS = "weights.safetensors"
BACKBONE = "backbone.safetensors"  # of a frozen backbone: the same in all versions of a model
OWN_BACKBONE = "network.backbone."
PREVIOUS_BACKBONE = f"answer.{PREVIOUS}backbone."
BYTES_PER_PIXEL = 100  # that a network takes for each pixel of an image, at least
MAX_REASON = 200  # characters of the reason for which a model is refused


def description(model: Model) -> dict[str, Any]:
    """Everything that is not a tensor."""
    preprocessing = model.preprocessing
    described = {
        "format": FORMAT,
        "classes": list(model.classes),
        "classes_per_step": list(model.classes_per_step),
        "backbone": model.backbone,
        "preprocessing": asdict(preprocessing),
        "answer": model.answer.description(),
    }
    if model.network.frozen:
        described["frozen"] = True
    configs = configs_of(model.backbone, model.network.backbone)
    if configs:
        described["backbone_configs"] = configs
    if model.retired:
        described["retired"] = list(model.retired)
    if model.calibration is not None:
        described["calibration"] = asdict(model.calibration)
    return described


def tensors(model: Model) -> Tensors:
    """All tensors, the network's under `network.` and the answer's under `answer.`."""
    named = {f"network.{name}": tensor for name, tensor in model.network.state_dict().items()}
    for name, tensor in model.answer.state_dict().items():
        named[f"answer.{name}"] = tensor
    return named


def tensors_by_file(model: Model) -> dict[str, Tensors]:
    """The tensors of each file.

    A frozen backbone has a file of its own. The network of the previous step has the same one.
    """
    named = tensors(model)
    if not model.network.frozen:
        return {WEIGHTS: named}
    weights: Tensors = {}
    backbone: Tensors = {}
    for name, tensor in named.items():
        if name.startswith(OWN_BACKBONE):
            backbone[name] = tensor
        elif not name.startswith(PREVIOUS_BACKBONE):
            weights[name] = tensor
    return {WEIGHTS: weights, BACKBONE: backbone}


def _joined(content: Mapping[str, bytes]) -> Tensors:
    """The tensors of all files: the reverse of `tensors_by_file`."""
    named = read_tensors(content[WEIGHTS])
    if BACKBONE not in content:
        return named
    backbone = read_tensors(content[BACKBONE])
    has_previous = any(name.startswith(f"answer.{PREVIOUS}") for name in named)
    for name, tensor in backbone.items():
        if not name.startswith(OWN_BACKBONE):
            raise ValueError(f"{BACKBONE} holds {name}")
        named[name] = tensor
        if has_previous:
            named[PREVIOUS_BACKBONE + name.removeprefix(OWN_BACKBONE)] = tensor
    return named


def model_files(model: Model) -> dict[str, files.Content]:
    """The files of a model folder."""

    contents: dict[str, files.Content] = {DESCRIPTION: files.to_json(description(model))}
    for name, named in tensors_by_file(model).items():
        contents[name] = partial(write_tensors, named)
    return contents


def save_model(model: Model, folder: Path) -> None:
    """Write a model to a new folder. Raises UserError if the folder exists."""
    if folder.exists():
        raise UserError(f"{folder} exists already", "choose another folder")
    files.write_folder(folder, model_files(model))


def load_model(folder: Path, *, trust: bool = False) -> Model:
    """The model in a model folder or a complete run folder, ready to predict."""
    for place in (folder / "model", folder):
        if is_versioned(place) or has_lost_root(place):
            _, contents = read_live(place, (DESCRIPTION, WEIGHTS), optional=(BACKBONE,))
            return model_of(contents, place, trust=trust)
    place = find_model_folder(folder)
    contents = files.read_folder(place, (DESCRIPTION, WEIGHTS), optional=(BACKBONE,))
    return model_of(contents, place, trust=trust)


def find_model_folder(folder: Path) -> Path:
    """The folder that holds the model: this one, or the `model` folder of a complete run."""
    if not folder.exists():
        raise UserError(f"{folder} does not exist", "give a folder that bic has written")
    for place in (folder / "model", folder):
        if (place / DESCRIPTION).exists():
            return place
    raise UserError(
        f"{folder} holds no model",
        "give a folder that bic learn, a complete bic run or Model.save has written",
    )


def model_of(content: Mapping[str, bytes], place: Path, *, trust: bool) -> Model:
    """A model from the content of its files. `place` names it in errors."""
    with _refusing_damage(place):
        found = parse_json(content[DESCRIPTION])
        if not isinstance(found, dict):
            raise ValueError("model.json holds no object")
        written_format = found.get("format", 1)
        if isinstance(written_format, int) and written_format > FORMAT:
            raise UserError(f"{place} was written by a newer version of bic", "upgrade bic")
        named = _joined(content)
        if written_format == 1:
            found, named = from_format_1(found, named)
            found["format"] = FORMAT
        checked = ModelDescription.model_validate(found)
        if is_imported(checked.backbone) and not trust:
            raise UserError(
                f"the model in {place} would import and run {checked.backbone}",
                "pass {trust} if you trust where it comes from",
            )
        refuse_odd_numbers(named)
        model = build_model(checked, named, trust=trust)
        side = checked.preprocessing.size or 1
        num_bytes = len(content[WEIGHTS]) + len(content.get(BACKBONE, b""))
        refuse_unpacking(place, num_bytes, BYTES_PER_PIXEL * side**2)
        return model


@contextmanager
def _refusing_damage(place: Path) -> Iterator[None]:
    """Turn any exception into a UserError: a foreign file can fail in any way."""
    try:
        yield
    except (BicError, MemoryError):
        raise
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"]))
        raise _damaged(place, f"{where}: {found['msg']}"[:MAX_REASON]) from error
    except KeyError as error:
        raise _damaged(place, f"it lacks {error}"[:MAX_REASON]) from error
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise _damaged(place, reason[:MAX_REASON]) from error


def _damaged(place: Path, reason: str) -> UserError:
    return UserError(f"{place} is damaged or not a model ({reason})", "copy or train it again")

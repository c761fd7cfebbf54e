"""Moments on disk: the sums from which an exact head is solved again."""

from functools import partial
from pathlib import Path

import torch

from bic import files
from bic.errors import UserError
from bic.learn.moments import Moments
from bic.model.answers import RidgeHead
from bic.model.model import Model
from bic.model.tensor_files import read_tensors, refuse_odd_numbers, write_tensors

MOMENTS = "moments.safetensors"


def moments_files(moments: Moments | None) -> dict[str, files.Content]:
    """The file of the moments, in double precision, if there are any."""
    if moments is None:
        return {}
    return {MOMENTS: partial(write_tensors, moments.packed())}


def read_moments(content: bytes | None, model: Model, place: Path) -> Moments | None:
    """The moments of a model from the content of their file. `place` names it in errors.

    Raises UserError for moments that are damaged, missing, or of another model.
    """
    try:
        return parse_moments(content, model)
    except ValueError as error:
        raise UserError(f"{place / MOMENTS} is damaged ({error})", files.AGAIN) from error


def parse_moments(content: bytes | None, model: Model) -> Moments | None:
    """The moments of a model. Raises ValueError, with the reason, if they cannot be used."""
    if not isinstance(model.answer, RidgeHead):
        return None
    if content is None:
        raise ValueError("it is missing")
    tensors = read_tensors(content)
    refuse_odd_numbers(tensors)
    moments = Moments.unpacked(tensors, model.answer.expansion.dim, len(model.classes))
    if (moments.scatter.diagonal() < 0).any():
        raise ValueError("a sum of squares is negative")
    if not (moments.counts[torch.tensor(model.active)] > 0).all():
        raise ValueError("a class has no images")
    return moments

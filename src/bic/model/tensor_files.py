"""Tensors in safetensors files. What a file holds is checked before it is used."""

from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

MAX_HEADER_BYTES = 2**24  # names and shapes; those of an ensemble of 64 networks take 1 MB
LENGTH_BYTES = 8  # of the header's length


def write_tensors(named: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file without copying the tensors. A full disk raises OSError."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in named.items()}
    try:
        safetensors.torch.save_file(contiguous, path)
    except safetensors.SafetensorError as error:
        raise OSError(str(error)) from error
    path.chmod(path.parent.stat().st_mode & 0o666)  # the permissions of its folder


def read_tensors(content: bytes) -> dict[str, Tensor]:
    """The tensors in a safetensors file. Raises ValueError for a damaged one."""
    num_header_bytes = int.from_bytes(content[:LENGTH_BYTES], "little")
    if len(content) < LENGTH_BYTES or num_header_bytes > MAX_HEADER_BYTES:
        raise ValueError("its tensors have no header, or one of enormous size")
    try:
        return safetensors.torch.load(content)
    except (safetensors.SafetensorError, KeyError, RuntimeError) as error:
        raise ValueError(f"its tensors cannot be read: {error}") from error


def refuse_other_tensors(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], backbone: str
) -> None:
    """Raise ValueError unless names, shapes and types are those of the expected tensors."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    if shapes != {name: tensor.shape for name, tensor in expected.items()}:
        raise ValueError(f"its weights are not those of the backbone {backbone}")
    for name, tensor in tensors.items():
        if tensor.dtype != expected[name].dtype:
            raise ValueError(f"{name} has the type {tensor.dtype}, not {expected[name].dtype}")


def refuse_odd_numbers(tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError for NaN and infinity, and for a negative variance or a std of zero."""
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} holds NaN or infinity")
        is_variance = name.endswith("running_var")
        if is_variance and (tensor < 0).any():
            raise ValueError(f"{name} holds a negative variance")
        is_std = name.rpartition(".")[2] == "std"
        if is_std and (tensor <= 0).any():
            raise ValueError(f"{name} holds a standard deviation that is not positive")

"""Devices: cpu, or a GPU that can be used."""

import torch

from bic.errors import UserError


def check_device(device: str) -> None:
    """Raise UserError for a device that is unknown or cannot be used."""
    try:
        torch.device(device)
    except RuntimeError as error:
        raise UserError(
            f"the device {device} is unknown", "use cpu or cuda for {device}"
        ) from error
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"the device {device} cannot be used here ({error})", "leave out {device}, or fix that"
        ) from error


def chosen_device(device: str | None) -> str:
    """The device to use; by default a GPU if there is one. Raises UserError as `check_device`."""
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    check_device(device)
    return device

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

"""Devices that are unknown or cannot be used are refused before anything is trained."""

import pytest
import torch

from bic import UserError
from bic.compute.devices import check_device


def test_cpu_can_be_used() -> None:
    check_device("cpu")


def test_unknown_device_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        check_device("banana")
    assert caught.value.problem == "the device banana is unknown"
    assert caught.value.remedy == "use cpu or cuda for {device}"


@pytest.mark.parametrize("error", [RuntimeError, AssertionError])
def test_device_that_cannot_be_used_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("no driver")

    monkeypatch.setattr(torch, "zeros", fail)
    with pytest.raises(UserError) as caught:
        check_device("cuda:7")
    assert caught.value.problem == "the device cuda:7 cannot be used here (no driver)"
    assert caught.value.remedy == "leave out {device}, or fix that"

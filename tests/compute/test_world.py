"""What a process does alone, and how shards are made. No processes are started."""

import signal

import numpy as np
import pytest
import torch

from bic import LostError, UserError
from bic.compute import distributed
from bic.compute.distributed import (
    World,
    first_before_others,
    gathered,
    gathered_objects,
    joined,
    own_device,
    refuse_differences,
    world,
)


def test_single_process_has_everything() -> None:
    assert world() == World(rank=0, size=1)
    rows = torch.arange(6).view(3, 2)
    assert gathered(rows) is rows
    assert gathered_objects("value") == ["value"]
    values = iter(["first call", "second call"])
    assert first_before_others(lambda: next(values)) == "first call"
    handler = signal.getsignal(signal.SIGTERM)
    with joined("cpu") as team:
        assert team == World()
        assert signal.getsignal(signal.SIGTERM) == handler


@pytest.mark.parametrize("count", [0, 1, 7, 8])
def test_shards_are_nearly_equal_and_cover_everything(count: int) -> None:
    indices = np.arange(count) * 10
    shards = [World(rank, 3).share(indices) for rank in range(3)]
    assert np.concatenate(shards).tolist() == indices.tolist()
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= 1


def test_only_later_ranks_change_the_address_of_draws() -> None:
    assert World(0, 4).own_address == ()
    assert World(3, 4).own_address == (3,)


def test_every_process_gets_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert own_device("cuda") == "cuda"
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert own_device("cuda") == "cuda:2"
    assert own_device("cuda:0") == "cuda:0"
    assert own_device("cpu") == "cpu"


def test_the_own_gpu_is_the_current_one_before_processes_meet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[str, str]] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: calls.append(("set", device)))
    monkeypatch.setattr(
        distributed.dist, "init_process_group", lambda kind, **_: calls.append(("init", kind))
    )
    monkeypatch.setattr(distributed.dist, "barrier", lambda: None)
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: None)
    for device in ("cuda:1", "cpu"):
        with joined(device):
            pass
    assert calls == [("set", "cuda:1"), ("init", "nccl"), ("init", "gloo")]


def test_differences_between_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"data": "abc", "version": "1"}
    refuse_differences(facts)
    monkeypatch.setattr(
        distributed, "gathered_objects", lambda own: [own, own, {**own, "version": "2"}]
    )
    with pytest.raises(UserError) as caught:
        refuse_differences(facts)
    assert caught.value.problem == "the version of process 2 differs from process 0 (2, not 1)"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("[gloo/tcp.cc:81] Connection closed by peer", LostError),
        ("Watchdog: NCCL operation timed out", LostError),
        ("shape mismatch", RuntimeError),
    ],
)
def test_only_lost_connections_are_nobodys_fault(
    monkeypatch: pytest.MonkeyPatch, message: str, kind: type[Exception]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(kind) as caught, joined("cpu"):
        raise RuntimeError(message)
    assert signal.getsignal(signal.SIGTERM) == before
    if kind is LostError:
        assert "another process of this run was lost" in str(caught.value)
        assert "[gloo" not in str(caught.value)

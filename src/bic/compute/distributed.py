"""Several processes that train one model: torchrun starts them, DistributedDataParallel joins them.

Every process holds the whole model and the same settings, and takes its shard of every batch.
Features, held-out logits and predictions are computed in shards and gathered, so that every process
continues with the same numbers. Only rank 0 writes files.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn

from bic.errors import LostError, UserError

Value = TypeVar("Value")
CONTINUE = "run the same command again to continue from the last epoch"
TIMEOUT = timedelta(minutes=30)  # how long a process waits for the slowest process
LOSS_WORDS = ("Connection", "gloo", "NCCL", "timed out", "Socket", "reset by peer")


@dataclass(frozen=True)
class World:
    """Rank and world size."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def own_address(self) -> tuple[int, ...]:
        """What this process adds to the address of its draws: its rank, but nothing for rank 0."""
        return () if self.is_first else (self.rank,)

    def share(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """This process's shard. Shards have nearly equal sizes."""
        return np.array_split(indices, self.size)[self.rank]


def world() -> World:
    """Rank and world size of this process; rank 0 of 1 if `joined` is not active."""
    if not dist.is_initialized():
        return World()
    return World(dist.get_rank(), dist.get_world_size())


@contextmanager
def joined(device: str) -> Iterator[World]:
    """In this context the processes that torchrun started work together.

    Without torchrun the process works alone. Raises LostError if another process is lost.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield world()
        return
    if device.startswith("cuda:"):
        torch.cuda.set_device(device)  # NCCL exchanges objects on the current device
    dist.init_process_group("gloo" if device == "cpu" else "nccl", timeout=TIMEOUT)
    previous_handler = signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        yield world()
        dist.barrier()
    except (RuntimeError, ConnectionError) as error:
        if isinstance(error, torch.cuda.OutOfMemoryError) or not _is_loss(str(error)):
            raise
        reason = _first_line(error)
        raise LostError(f"another process of this run was lost ({reason})", CONTINUE) from error
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
        dist.destroy_process_group()


def _on_sigterm(*_: object) -> None:
    """torchrun sends SIGTERM when a process is lost, sometimes before we notice the loss."""
    raise LostError("another process of this run was lost, or torchrun was stopped", CONTINUE)


def own_device(device: str) -> str:
    """The device of this process. Processes that torchrun started have one GPU each."""
    local_rank = os.environ.get("LOCAL_RANK")
    if local_rank is None or device == "cpu" or ":" in device:
        return device
    return f"{device}:{local_rank}"


def refuse_differences(facts: dict[str, str]) -> None:
    """Raise UserError in every process if a fact differs between processes."""
    everywhere = gathered_objects(facts)
    first = everywhere[0]
    for rank, other in enumerate(everywhere):
        for name, value in first.items():
            if other[name] != value:
                difference = f"{other[name]}, not {value}"
                raise UserError(
                    f"the {name} of process {rank} differs from process 0 ({difference})",
                    f"use the same {name} in all processes, and run again",
                )


def first_before_others(work: Callable[[], Value]) -> Value:
    """Do `work` in every process. The others start when rank 0 has finished."""
    value = work() if world().is_first else None
    if world().size > 1:
        dist.barrier()
    return work() if value is None else value


def gathered(rows: Tensor) -> Tensor:
    """The rows of all processes, in order of rank. Each process may have any number of rows."""
    if world().size == 1:
        return rows
    return torch.cat(gathered_objects(rows.cpu())).to(rows.device)


def gathered_objects(value: Value) -> list[Value]:
    """The values of all processes, in order of rank."""
    if world().size == 1:
        return [value]
    values: list[Any] = [None] * world().size
    dist.all_gather_object(values, value)
    return values


@torch.no_grad()
def share_buffers(module: nn.Module) -> None:
    """Give every process the buffers of rank 0, such as the statistics of batch norm."""
    if world().size == 1:
        return
    for buffer in module.buffers():
        shared = buffer.contiguous()
        dist.broadcast(shared, src=0)
        buffer.copy_(shared)


def _is_loss(message: str) -> bool:
    return any(word in message for word in LOSS_WORDS)


def _first_line(error: BaseException) -> str:
    """The first line of the error, without the source location that torch puts before it."""
    return re.sub(r"^\[[^]]*\]\s*", "", str(error).splitlines()[0])[:200]

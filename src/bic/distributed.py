"""Several processes that train one model: torchrun starts them, DistributedDataParallel joins their gradients.

Every process holds the whole model and the same plan, and takes its share of every batch. What is computed for all
images is computed in shares and gathered, so that every process goes on with the same numbers; the first one writes.
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
from torch import Tensor

from bic.errors import LostError, UserError

Value = TypeVar("Value")
GO_ON = "run the same command again and it goes on from the last epoch"
PATIENCE = timedelta(minutes=30)  # how long a process waits for the slowest


@dataclass(frozen=True)
class World:
    """Which of how many processes this is."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def own_address(self) -> tuple[int, ...]:
        """What this process's draws have in their address beside what those of a single process have."""
        return () if self.first else (self.rank,)

    def share(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """This process's part of something, in pieces of nearly equal size."""
        return np.array_split(indices, self.size)[self.rank]


def world() -> World:
    """The processes that have been joined; one, if none have."""
    return World(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else World()


@contextmanager
def joined(device: str) -> Iterator[World]:
    """Within, the processes that torchrun started work as one. Without torchrun, this one works alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield world()
        return
    dist.init_process_group("gloo" if device == "cpu" else "nccl", timeout=PATIENCE)
    before = signal.signal(signal.SIGTERM, _ended)
    try:
        yield world()
        dist.barrier()
    except (RuntimeError, ConnectionError) as error:
        if isinstance(error, torch.cuda.OutOfMemoryError) or not _is_loss(str(error)):
            raise
        raise LostError(f"another process of this run was lost ({_first_line(error)}); {GO_ON}") from error
    finally:
        signal.signal(signal.SIGTERM, before)
        dist.destroy_process_group()


def _ended(*_: object) -> None:
    """What torchrun's signal means, which may come before the loss itself is seen."""
    raise LostError(f"another process of this run was lost, or torchrun was ended; {GO_ON}")


def own_device(device: str) -> str:
    """The GPU of this process, where there is one for each."""
    local = os.environ.get("LOCAL_RANK")
    return device if local is None or device == "cpu" or ":" in device else f"{device}:{local}"


def refuse_differences(facts: dict[str, str]) -> None:
    """Raise UserError, in every process, if any of the facts is another in another process."""
    everywhere = gathered_objects(facts)
    for rank, other in enumerate(everywhere):
        for name, value in everywhere[0].items():
            if other[name] != value:
                found = f"process {rank} has another {name} than process 0 ({other[name]}, not {value})"
                raise UserError(f"{found}; give all of them the same, and run again")


def first_before_others(work: Callable[[], Value]) -> Value:
    """Do something in every process, in the first before the others begin."""
    value = work() if world().first else None
    if world().size > 1:
        dist.barrier()
    return work() if value is None else value


def gathered(rows: Tensor) -> Tensor:
    """The rows of all processes, in the order of the processes; each may have any number."""
    return torch.cat(gathered_objects(rows.cpu())).to(rows.device) if world().size > 1 else rows


def gathered_objects(value: Value) -> list[Value]:
    """A value of every process, in the order of the processes."""
    if world().size == 1:
        return [value]
    values: list[Any] = [None] * world().size
    dist.all_gather_object(values, value)
    return values


def _is_loss(message: str) -> bool:
    return any(word in message for word in ("Connection", "gloo", "NCCL", "timed out", "Socket", "reset by peer"))


def _first_line(error: BaseException) -> str:
    """What went wrong, without the place in the library's source."""
    return re.sub(r"^\[[^]]*\]\s*", "", str(error).splitlines()[0])[:200]

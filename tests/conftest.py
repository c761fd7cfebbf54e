"""Tests run side by side in processes, on small networks: one thread each is the fastest."""

import torch

torch.set_num_threads(1)

"""Tests run in parallel processes on small networks: one thread in each is fastest."""

import torch

torch.set_num_threads(1)

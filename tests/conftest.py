"""One thread for all tests: reproducible numbers, and no crawling on a busy machine."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import torch

torch.set_num_threads(1)

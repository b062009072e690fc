"""One thread for all tests: reproducible numbers, and no crawling on a busy machine."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402

torch.set_num_threads(1)

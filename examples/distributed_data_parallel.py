"""Train with the Correctness Ranking Loss in several processes: DistributedDataParallel, started by torchrun.

    torchrun --nproc-per-node 2 examples/distributed_data_parallel.py [FILE]

Every process trains on its share of scikit-learn's digits, on a GPU of its own where there are GPUs, else on the CPU.
The pairs of the loss and the history are those of one process with the complete batches. Writes the weights and the
history to FILE (default: digits.pt). Takes a few seconds on a CPU.

Expected output:

    ok: 1200 samples...
    accuracy 0.9..., AURC 0.0..., ECE 0.0...
"""

import os
import sys

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from confrank import CorrectnessHistory, CorrectnessRankingLoss, IndexedDataset, SharedHistory, SharedRing
from confrank.adapters.torchmetrics import ConfidenceMetrics

EPOCHS, BATCH_SIZE = 10, 64  # of each process


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,200 images to train on and 597 to test on, pixels [64] and label of each."""
    image, label = (torch.from_numpy(values) for values in load_digits(return_X_y=True))
    train, test = train_test_split(range(len(label)), train_size=1200, random_state=0, stratify=label)
    image = image.float() / 16
    return TensorDataset(image[train], label[train]), TensorDataset(image[test], label[test])


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(train_set: TensorDataset, device: torch.device) -> tuple[nn.Module, CorrectnessRankingLoss]:
    model = DistributedDataParallel(make_model().to(device))
    history = CorrectnessHistory(len(train_set))  # in every process: of the complete training set
    criterion = CorrectnessRankingLoss(history, ring=SharedRing()).to(device)
    shared, optimizer = SharedHistory(history), make_optimizer(model)
    sampler = DistributedSampler(train_set, seed=1)
    loader = DataLoader(IndexedDataset(train_set), batch_size=BATCH_SIZE, sampler=sampler)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for batch in loader:
            image, label, index = (values.to(device) for values in batch)
            optimizer.zero_grad()
            criterion(model(image), label, index).backward()
            optimizer.step()
        shared.add_up()
    return model.module, criterion


@torch.no_grad()
def evaluate(model: nn.Module, test_set: TensorDataset, device: torch.device) -> dict[str, torch.Tensor]:
    """Each process predicts its share; an image that the sampler gives to two of them counts once."""
    metrics = ConfidenceMetrics().to(device)
    sampler = DistributedSampler(test_set, shuffle=False)
    for batch in DataLoader(IndexedDataset(test_set), batch_size=256, sampler=sampler):
        image, label, index = (values.to(device) for values in batch)
        metrics.update(model(image), label, index)
    return metrics.compute()


def main(file: str = "digits.pt") -> None:
    distributed.init_process_group()  # gloo between CPUs, nccl between GPUs
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    train_set, test_set = digits()
    model, criterion = train(train_set, device)
    metrics = evaluate(model.eval(), test_set, device)
    if distributed.get_rank() == 0:
        print(criterion.history.audit(epochs=EPOCHS))
        print(f"accuracy {metrics['acc']:.3f}, AURC {metrics['aurc']:.3f}, ECE {metrics['ece']:.3f}")
        torch.save({"model": model.state_dict(), "criterion": criterion.state_dict()}, file)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # on CPUs, torch 2.13 may abort a process that is done, and torchrun would report a failure

"""Add the Correctness Ranking Loss to a plain PyTorch training loop.

Trains a small network on noisy 8x8 digits and evaluates it on the test split. Takes a few seconds on a CPU.

Expected output:

    ok: 900 samples...
    accuracy 0..., AURC 0..., ECE 0...
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from confrank import CorrectnessHistory, CorrectnessRankingLoss, IndexedDataset, evaluate
from confrank.data import Split, load

EPOCHS = 30


def tensors(split: Split) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels [n, 64] around zero, and labels [n]."""
    return torch.from_numpy(split.images).flatten(1) / 64 - 1.6, torch.from_numpy(split.labels)


def main() -> None:
    torch.manual_seed(0)
    digits = load("digits")
    train_set = TensorDataset(*tensors(digits.train))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    history = CorrectnessHistory(len(train_set))
    criterion = CorrectnessRankingLoss(history, weight=1.0)
    for _ in range(EPOCHS):
        for image, label, index in DataLoader(IndexedDataset(train_set), batch_size=64, shuffle=True):
            optimizer.zero_grad()
            criterion(model(image), label, index).backward()
            optimizer.step()
    print(history.audit(epochs=EPOCHS))
    image, label = tensors(digits.test)
    with torch.no_grad():
        metrics = evaluate(logits=model(image), label=label).metrics
    print(f"accuracy {metrics['acc']:.3f}, AURC {metrics['aurc']:.3f}, ECE {metrics['ece']:.3f}")


if __name__ == "__main__":
    main()

"""Does an independent training loop also jump at learning rate 0.1, in the first steps of active learning?

    python experiments/active_start.py --root DATA

ResNet-18 on the 2,000 samples of CIFAR-10 that trial 0 starts from, batch 128, SGD with rate 0.1, momentum 0.9 and
weight decay 1e-4, float32 on a CPU. `confrank` is our run; `plain` is a network and loop of torch's own parts, with
torch's initialisation and no augmentation. Prints the loss of each step of one epoch.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from confrank.active.experiment import Experiment, first_labelled
from confrank.data import DataSet, load
from confrank.training import Run


class Block(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])
        self.shortcut = nn.Sequential()
        if stride != 1 or before != width:
            self.shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, maps: Tensor) -> Tensor:
        inner = functional.relu(self.norms[0](self.first(maps)))
        return functional.relu(self.norms[1](self.second(inner)) + self.shortcut(maps))


def plain_losses(data: DataSet) -> list[float]:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    before = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, width, stride), Block(width, width, 1)]
        before = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    pixels = torch.from_numpy(data.train.images).permute(0, 3, 1, 2).float() / 255
    images = (pixels - torch.tensor(data.mean).view(3, 1, 1)) / torch.tensor(data.std).view(3, 1, 1)
    labels, losses = torch.from_numpy(data.train.labels), []
    for rows in torch.randperm(len(labels)).split(128):
        loss = functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def confrank_losses(data: DataSet) -> list[float]:
    run = Run(Experiment().config("baseline", 0, 1), data, torch.device("cpu"))
    for _ in range(run.num_steps):
        run.step()
    return run.step_loss.tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder of the data sets")
    cifar = load("cifar10", parser.parse_args().root)
    data = replace(cifar, train=cifar.train.select(np.sort(first_labelled(len(cifar.train), 2000, 0))))
    for name, losses in (("confrank", confrank_losses(data)), ("plain", plain_losses(data))):
        print(f"{name:<9}", " ".join(f"{loss:.2f}" for loss in losses), flush=True)


if __name__ == "__main__":
    main()

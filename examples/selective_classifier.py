"""Choose a threshold with a guaranteed error rate on validation data, and use it on new data.

The guarantee: among accepted answers to new samples, at most 5% are wrong, with probability 0.95. On these test
samples, the error rate among accepted is below it, and about a quarter of the answers are handed to a person.

Expected output:

    threshold 0.87..., guaranteed error rate 0.0...
    test: ... of 900 answers accepted, error rate among accepted 0.0..., among all 0.0...
"""

import numpy as np
import torch

from confrank import SelectiveClassifier
from confrank.decisions import ABSTAIN, guaranteed_threshold

RISK, DELTA = 0.05, 0.05


def main() -> None:
    model, images, labels = trained_model()
    validation, test = slice(0, 1800), slice(1800, 2700)
    with torch.no_grad():
        probabilities = model(images).softmax(1)
    confidence, prediction = probabilities.double().max(1)
    correct = prediction == labels
    rule = guaranteed_threshold(confidence[validation], correct[validation], RISK, delta=DELTA)
    print(f"threshold {rule.threshold:.3f}, guaranteed error rate {rule.bound:.4f}")
    careful = SelectiveClassifier(model, threshold=rule.threshold)
    answers = careful(images[test])
    accepted = answers != ABSTAIN
    wrong = (answers != labels[test])[accepted].double().mean()
    everything = (~correct[test]).double().mean()
    print(
        f"test: {int(accepted.sum())} of {len(answers)} answers accepted,"
        f" error rate among accepted {wrong:.4f}, among all {everything:.4f}"
    )


def trained_model() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """A logistic regression on three noisy clusters, and samples that it has not seen."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 3300)
    centres = np.array([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])
    points = torch.tensor(centres[labels] + 1.1 * random.standard_normal((3300, 2)), dtype=torch.float32)
    target = torch.tensor(labels)
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(points[:600]), target[:600]).backward()
        optimizer.step()
    return model, points[600:], target[600:]


if __name__ == "__main__":
    main()

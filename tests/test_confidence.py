import math

import pytest
import torch
from scipy.stats import entropy

from confrank.confidence import CONFIDENCES, get, margin, max_probability, negative_entropy


@pytest.mark.parametrize("num_classes", [2, 10, 1000])
def test_equal_textbook_definitions(num_classes):
    logits = torch.randn(64, num_classes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    probability = torch.softmax(logits, dim=1).numpy()
    ordered = -(-probability).copy()
    ordered.sort(axis=1)
    assert max_probability(logits).numpy() == pytest.approx(ordered[:, -1], abs=1e-15)
    assert margin(logits).numpy() == pytest.approx(ordered[:, -1] - ordered[:, -2], abs=1e-15)
    expected = 1 - entropy(probability, axis=1) / math.log(num_classes)
    assert negative_entropy(logits).numpy() == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("name", CONFIDENCES)
def test_log_probabilities_with_exact_zeros_are_logits(name):
    log_probability = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]).log().requires_grad_()
    confidence = get(name)(log_probability)
    expected = {"max_probability": [0.5, 1], "margin": [0, 1], "negative_entropy": [1 - math.log(2) / math.log(3), 1]}
    assert confidence.tolist() == pytest.approx(expected[name])
    confidence.sum().backward()
    assert torch.isfinite(log_probability.grad).all()


@pytest.mark.parametrize("name", CONFIDENCES)
@pytest.mark.parametrize(
    ("dtype", "result"),
    [(torch.bfloat16, torch.float32), (torch.float16, torch.float32), (torch.float64, torch.float64)],
)
def test_precision(name, dtype, result):
    assert get(name)(torch.randn(3, 4).to(dtype)).dtype == result
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert get(name)(torch.randn(3, 4, dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize("num_classes", [2, 5, 7, 10, 100, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_predictions_stay_in_the_unit_interval(num_classes, dtype):
    logits = torch.zeros(3, num_classes, dtype=dtype, requires_grad=True)
    for confidence in CONFIDENCES.values():
        value = confidence(logits)
        assert 0 <= value.min() <= value.max() <= 1
        assert torch.isfinite(torch.autograd.grad(value.sum(), logits)[0]).all()


def test_wrong_input():
    with pytest.raises(ValueError, match=r"at least 2 classes.*\(5, 1\)"):
        max_probability(torch.zeros(5, 1))
    with pytest.raises(ValueError, match=r"logits to be a torch tensor, but got list; convert .*torch.as_tensor"):
        negative_entropy([[0.5, 0.5]])
    with pytest.raises(ValueError, match="floating-point logits, but got torch.int64"):
        margin(torch.zeros(5, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="max_probability, negative_entropy, margin, but got 'softmax'"):
        get("softmax")


@pytest.mark.parametrize("name", CONFIDENCES)
def test_classes_are_the_last_dimension(name):
    logits = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    rows = [[get(name)(logits[i, j][None]).item() for j in range(2)] for i in range(3)]
    assert get(name)(logits).numpy() == pytest.approx(torch.tensor(rows).numpy())

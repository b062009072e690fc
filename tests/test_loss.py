import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch.utils.data import TensorDataset

from confrank import CorrectnessHistory, CorrectnessRanking, CorrectnessRankingLoss, evaluate
from confrank.confidence import CONFIDENCES, get
from confrank.loss import ranking_loss
from confrank.metrics import nll


def naive_ranking_loss(confidence, rate):
    """Equation 2 of the paper, pair by pair."""
    total, size = 0.0, len(confidence)
    for i in range(size):
        j = (i + 1) % size
        sign = (rate[i] > rate[j]) - (rate[i] < rate[j])
        total += max(0.0, -sign * (confidence[i] - confidence[j]) + abs(rate[i] - rate[j]))
    return total / size


def random_case(seed, size, num_classes, num_samples=50):
    generator = torch.Generator().manual_seed(seed)
    history = CorrectnessHistory(num_samples)
    history.examined.copy_(torch.randint(0, 6, (num_samples,), generator=generator))
    history.correct.copy_((torch.rand(num_samples, generator=generator) * (history.examined + 1)).int())
    logits = 3 * torch.randn(size, num_classes, dtype=torch.float64, generator=generator)
    label = torch.randint(0, num_classes, (size,), generator=generator)
    index = torch.randint(0, num_samples, (size,), generator=generator)
    return history, logits, label, index


@pytest.mark.parametrize("stretched", [False, True])
@pytest.mark.parametrize("name", CONFIDENCES)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 20), num_classes=st.sampled_from([2, 3, 10]))
def test_equals_a_naive_loop(name, stretched, seed, size, num_classes):
    history, logits, label, index = random_case(seed, size, num_classes)
    if stretched:
        history.correct += 2
        history.examined += 2
    rate = history.rate(index, stretched=stretched)
    expected = naive_ranking_loss(get(name)(logits).tolist(), rate.tolist())
    cross_entropy = -torch.log_softmax(logits, 1)[torch.arange(size), label].mean().item()
    loss = CorrectnessRankingLoss(history, name, weight=0.7, stretched=stretched)(logits, label, index)
    assert loss.item() == pytest.approx(cross_entropy + 0.7 * expected, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 12))
def test_ignored_samples_are_neither_paired_nor_recorded(seed, size):
    history, logits, label, index = random_case(seed, size, 4, num_samples=12)
    index = torch.randperm(12, generator=torch.Generator().manual_seed(seed))[:size]
    ignored = torch.rand(size, generator=torch.Generator().manual_seed(seed + 1)) < 0.4
    ignored[0] = False
    other = CorrectnessHistory(12)
    other.load_state_dict(history.state_dict())
    kept = ~ignored
    logits.requires_grad_()
    loss = CorrectnessRankingLoss(history, "margin")(logits, torch.where(ignored, -100, label), index)
    (gradient,) = torch.autograd.grad(loss, logits)
    expected = CorrectnessRankingLoss(other, "margin", ignore_index=None)(logits[kept], label[kept], index[kept])
    (expected_gradient,) = torch.autograd.grad(expected, logits)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    torch.testing.assert_close(gradient, expected_gradient, atol=1e-7, rtol=1e-6)
    for name, value in history.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


@pytest.mark.parametrize("name", CONFIDENCES)
def test_equal_rates_leave_cross_entropy_alone(name):
    _, logits, label, index = random_case(4, 16, 5)
    history = CorrectnessHistory(50)
    history.examined.fill_(4)
    history.correct.fill_(3)
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(CorrectnessRankingLoss(history, name)(logits, label, index), logits)
    (expected,) = torch.autograd.grad(functional.cross_entropy(logits, label), logits)
    assert torch.equal(gradient, expected)


@pytest.mark.parametrize("name", CONFIDENCES)
@pytest.mark.parametrize("num_classes", [2, 1000])
@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("outcome", ["right", "wrong"])
def test_finite_at_the_edges(name, num_classes, size, outcome):
    history = CorrectnessHistory(size)
    criterion = CorrectnessRankingLoss(history, name)
    label = torch.zeros(size, dtype=torch.int64)
    logits = torch.zeros(size, num_classes)
    logits[:, 0 if outcome == "right" else 1] = 200.0
    logits.requires_grad_()
    for _ in range(3):
        loss = criterion(logits, label, torch.arange(size))
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss.isfinite()
        assert gradient.isfinite().all()
    assert history.rate(torch.arange(size)).tolist() == [float(outcome == "right")] * size


def test_a_row_with_nan_is_never_correct():
    history = CorrectnessHistory(3)
    logits = torch.tensor([[torch.nan, torch.nan], [2.0, torch.nan], [2.0, 1.0]])
    CorrectnessRankingLoss(history)(logits, torch.tensor([0, 1, 0]), torch.arange(3))
    assert history.examined.tolist() == [1, 1, 1]
    assert history.correct.tolist() == [0, 0, 1]
    CorrectnessRanking(history)(torch.tensor([torch.nan, -1.0]), torch.tensor([0, 0]), torch.arange(2))
    assert history.correct.tolist() == [0, 1, 1]


def test_uses_rates_from_before_the_step():
    history = CorrectnessHistory(2)
    criterion = CorrectnessRankingLoss(history)
    logits, label = torch.tensor([[4.0, 0.0], [4.0, 0.0]]), torch.tensor([0, 1])
    cross_entropy = functional.cross_entropy(logits, label).item()
    assert criterion(logits, label, torch.arange(2)).item() == pytest.approx(cross_entropy)
    # Now the rates are 1 and 0 while the confidences are equal: both pairs cost |c_i - c_j| = 1.
    assert criterion(logits, label, torch.arange(2)).item() == pytest.approx(cross_entropy + 1)


def test_criteria_that_share_a_history_record_independently():
    history = CorrectnessHistory(2)
    first, second = CorrectnessRankingLoss(history), CorrectnessRanking(history)
    case = torch.eye(2), torch.arange(2), torch.arange(2)
    torch.nn.ModuleList([second]).eval()
    second(*case)
    first(*case, record=False)
    assert history.examined.tolist() == [0, 0]
    first(*case)
    assert history.examined.tolist() == [1, 1]
    history.eval()
    first(*case)
    assert history.examined.tolist() == [1, 1]
    first.train()(*case)
    assert history.examined.tolist() == [2, 2]


@pytest.mark.parametrize("some_ignored", [False, True])
def test_options_mean_what_they_mean_in_cross_entropy(some_ignored):
    history, logits, label, index = random_case(6, 10, 4)
    label[4] = -100 if some_ignored else label[4]
    class_weight = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    options = {"label_smoothing": 0.1}
    loss = CorrectnessRankingLoss(history, weight=0, class_weight=class_weight, **options)(logits, label, index)
    expected = torch.nn.CrossEntropyLoss(weight=class_weight, **options)(logits, label)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12 if some_ignored else 0, rel=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_criterion_that_was_cast_keeps_its_class_weight(dtype):
    history, logits, label, index = random_case(6, 10, 4)
    criterion = CorrectnessRankingLoss(history, weight=0, class_weight=torch.tensor([1.0, 2.0, 0.5, 3.0])).to(dtype)
    loss = criterion(logits.to(dtype), label, index)
    expected = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 3.0]))(logits.to(dtype).float(), label)
    assert loss.item() == expected.item()


def test_ranking_loss_is_linear_in_scale():
    confidence, rate = torch.rand(9), torch.rand(9)
    for other in (rate[:1], rate[:8], rate[:, None]):
        with pytest.raises(ValueError, match=r"confidence and rate of one shape \[b\], but got \(9,\) and \("):
            ranking_loss(confidence, other)
    assert ranking_loss(2 * confidence, 2 * rate).item() == pytest.approx(2 * ranking_loss(confidence, rate).item())


def test_wrong_input():
    criterion = CorrectnessRankingLoss(CorrectnessHistory(10))
    logits, label, index = torch.randn(4, 3), torch.zeros(4, dtype=torch.int64), torch.arange(4)
    with pytest.raises(ValueError, match=r"two classes, \[batch\], but got \(4, 3\) of torch.int64"):
        criterion(logits.long(), label, index)
    with pytest.raises(ValueError, match=r"class indices within 0..2 as label, but got 3; set ignore_index"):
        criterion(logits, label + 3, index)
    with pytest.raises(ValueError, match=r"class indices within 0..2 as label, but got -100; set ignore_index"):
        CorrectnessRanking(criterion.history, ignore_index=None)(logits, label - 100, index)
    with pytest.raises(ValueError, match="soft labels"):
        criterion(logits, torch.softmax(logits, 1), index)
    with pytest.raises(ValueError, match="one batch size, but got 4, 4 and 3"):
        criterion(logits, label, index[:3])
    with pytest.raises(ValueError, match=r"within 0..9 .* but got 10"):
        criterion(logits, label, index + 7)
    with pytest.raises(ValueError, match="int64 tensor of data set positions"):
        criterion(logits, label, index.float())
    with pytest.raises(ValueError, match=r"torch.int32; convert it with index.long\(\)"):
        criterion(logits, label, index.int())
    for other, kind in ((index.numpy(), "numpy.ndarray"), (index.tolist(), "builtins.list")):
        with pytest.raises(ValueError, match=rf"tensor, but got {kind}; convert it with torch.as_tensor\(index\)"):
            criterion(logits, label, other)
    for narrow in (torch.int32, torch.uint8):
        with pytest.raises(ValueError, match=rf"of {narrow}; convert them with label.long\(\)"):
            criterion(logits, label.to(narrow), index)
    with pytest.raises(ValueError, match=r"label to be a torch tensor, but got numpy.ndarray"):
        criterion(logits, label.numpy(), index)
    with pytest.raises(ValueError, match="history to be a CorrectnessHistory, but got 10; make one with"):
        CorrectnessRankingLoss(10)
    with pytest.raises(ValueError, match="logits to be a torch tensor, but got numpy.ndarray"):
        criterion(logits.numpy(), label, index)
    for weight in (-1, float("inf"), float("nan"), None, "1"):
        with pytest.raises(ValueError, match=f"weight to be a finite number >= 0, but got {weight!r}"):
            CorrectnessRankingLoss(CorrectnessHistory(10), weight=weight)
    for weight in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=f"expected class weights of at least 0, but got {weight:g}"):
            CorrectnessRankingLoss(CorrectnessHistory(3), class_weight=torch.tensor([1.0, weight]))
    with pytest.raises(ValueError, match=r"turn logits \(4, 3\) into a tensor \(4,\), but got \(4, 3\); the last"):
        CorrectnessRanking(criterion.history, torch.sigmoid)(logits, label, index)
    assert criterion.history.examined.sum() == 0


def test_a_function_as_confidence():
    history, logits, label, index = random_case(11, 8, 4)
    ranking = CorrectnessRanking(history, lambda z: z.amax(dim=-1).sigmoid())
    expected = naive_ranking_loss(logits.amax(dim=1).sigmoid().tolist(), history.rate(index).tolist())
    assert ranking(logits, label, index).item() == pytest.approx(expected, abs=1e-6)
    learned = CorrectnessRankingLoss(history, torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Flatten(0)))
    assert "Sequential" in repr(learned)
    learned(logits.float(), label, index).backward()
    assert learned.confidence[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("ignore_index", [None, -100])
def test_class_100_counts_as_any_other(ignore_index):
    history = CorrectnessHistory(3)
    logits = torch.randn(3, 101, generator=torch.Generator().manual_seed(2))
    label = torch.tensor([100, 100, 5])
    criterion = CorrectnessRankingLoss(history, weight=0, ignore_index=ignore_index)
    expected = -torch.log_softmax(logits, 1)[torch.arange(3), label].mean().item()
    assert criterion(logits, label, torch.arange(3)).item() == pytest.approx(expected)
    assert history.examined.tolist() == [1, 1, 1]


def test_common_mistakes_say_what_to_do():
    logits, label, index = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2]), torch.arange(6)
    samples = TensorDataset(logits, label)
    history = CorrectnessHistory(6)
    criterion, one_hot = CorrectnessRankingLoss(history), functional.one_hot(label, 3).float()
    mistakes = {
        "num_samples to be a positive integer, but got .*; pass its length": lambda: CorrectnessHistory(samples),
        "got builtins.tuple; pass the tensor that it contains": lambda: criterion((logits, logits), label, index),
        "got builtins.dict; pass its logits": lambda: criterion({"logits": logits}, label, index),
        r"class_weight to be a torch tensor, but got builtins.list; convert it with torch.as_tensor": (
            lambda: CorrectnessRankingLoss(history, class_weight=[1.0, 2.0, 3.0])
        ),
        r"or use label.argmax\(1\) if they are one-hot": lambda: criterion(logits, one_hot, index),
        "for a binary classifier give both columns": lambda: nll(np.full(6, 0.7), label > 0),
        "give their names in the order of the columns": lambda: evaluate(logits=logits, label=["a", "b", "c"] * 2),
    }
    for message, mistake in mistakes.items():
        with pytest.raises(ValueError, match=message):
            mistake()


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 4, 4)])
def test_outputs_of_softmax_are_noticed(shape):
    history = CorrectnessHistory(6, resolution=1000)
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    label, index = logits.argmax(1), torch.arange(6)
    for criterion in (CorrectnessRankingLoss(history), CorrectnessRanking(history)):
        with pytest.warns(UserWarning, match="like probabilities; pass the outputs of the network before softmax"):
            criterion(logits.softmax(1), label, index)
        one_hot = torch.zeros(shape).scatter_(1, label.unsqueeze(1), 1.0)
        shifted = logits.softmax(1) + torch.eye(6)[0].view(-1, *[1] * (len(shape) - 1))
        for fine in (logits, logits.log_softmax(1), logits.sigmoid(), one_hot, shifted, shifted.flip(0)):
            criterion(fine, label, index)
        criterion(logits.softmax(1)[:1], label[:1], index[:1])  # one sample says little


def test_functional_gradients_and_many_networks_in_one_call():
    """torch.func cannot record."""
    history, logits, label, index = random_case(0, 8, 3)
    criterion, many = CorrectnessRankingLoss(history), torch.stack((logits, 2 * logits, logits.flip(1)))
    losses = torch.func.vmap(lambda one: criterion(one, label, index, record=False))(many)
    torch.testing.assert_close(losses, torch.stack([criterion(one, label, index, record=False) for one in many]))
    gradient = torch.func.grad(lambda one: criterion(one, label, index, record=False))(logits)
    logits.requires_grad_()
    criterion(logits, label, index).backward()
    torch.testing.assert_close(gradient, logits.grad)

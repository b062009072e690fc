import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from confrank import CorrectnessHistory, CorrectnessRankingLoss
from confrank.confidence import CONFIDENCES, get
from confrank.loss import ranking_loss


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
def test_gradcheck(name):
    history, logits, label, index = random_case(3, 8, 5)
    criterion = CorrectnessRankingLoss(history, name)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: criterion(z, label, index, record=False), logits)


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


@pytest.mark.parametrize("stretched", [False, True])
@pytest.mark.parametrize("name", CONFIDENCES)
@pytest.mark.filterwarnings("ignore")
def test_compiled_whole_equals_eager(name, stretched):
    history, logits, label, index = random_case(5, 16, 10)
    twin = CorrectnessHistory(50)
    twin.load_state_dict(history.state_dict())
    label[3] = -100
    eager = CorrectnessRankingLoss(history, name, stretched=stretched)
    twin_loss = CorrectnessRankingLoss(twin, name, stretched=stretched)
    compiled = torch.compile(twin_loss, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        first, second = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        loss, other = eager(first, label, index), compiled(second, label, index)
        loss.backward()
        other.backward()
        assert other.item() == pytest.approx(loss.item(), abs=1e-12)
        torch.testing.assert_close(first.grad, second.grad)
    assert torch.equal(history.correct, twin.correct)
    assert torch.equal(history.examined, twin.examined)


def test_a_row_with_nan_is_never_correct():
    history = CorrectnessHistory(3)
    logits = torch.tensor([[torch.nan, torch.nan], [2.0, torch.nan], [2.0, 1.0]])
    CorrectnessRankingLoss(history)(logits, torch.tensor([0, 1, 0]), torch.arange(3))
    assert history.examined.tolist() == [1, 1, 1]
    assert history.correct.tolist() == [0, 0, 1]


def test_uses_rates_from_before_the_step():
    history = CorrectnessHistory(2)
    criterion = CorrectnessRankingLoss(history)
    logits, label = torch.tensor([[4.0, 0.0], [4.0, 0.0]]), torch.tensor([0, 1])
    cross_entropy = functional.cross_entropy(logits, label).item()
    assert criterion(logits, label, torch.arange(2)).item() == pytest.approx(cross_entropy)
    # Now the rates are 1 and 0 while the confidences are equal: both pairs cost |c_i - c_j| = 1.
    assert criterion(logits, label, torch.arange(2)).item() == pytest.approx(cross_entropy + 1)


def test_recording_can_be_switched_off():
    history = CorrectnessHistory(2)
    criterion = CorrectnessRankingLoss(history)
    case = torch.eye(2), torch.arange(2), torch.arange(2)
    criterion(*case, record=False)
    criterion.eval()
    criterion(*case)
    assert history.examined.tolist() == [0, 0]
    criterion.train()
    criterion(*case)
    assert history.examined.tolist() == [1, 1]


def test_autocast_and_accumulation():
    model = torch.nn.Linear(6, 3)
    history = CorrectnessHistory(8)
    criterion = CorrectnessRankingLoss(history, "negative_entropy")
    data, label = torch.randn(8, 6), torch.randint(0, 3, (8,))
    for part in (slice(0, 4), slice(4, 8)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = criterion(model(data[part]), label[part], torch.arange(8)[part]) / 2
        assert loss.dtype == torch.float32
        loss.backward()
    assert history.examined.tolist() == [1] * 8
    assert model.weight.grad.isfinite().all()


def test_options_mean_what_they_mean_in_cross_entropy():
    history, logits, label, index = random_case(6, 10, 4)
    class_weight = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    options = {"label_smoothing": 0.1}
    loss = CorrectnessRankingLoss(history, weight=0, class_weight=class_weight, **options)(logits, label, index)
    expected = torch.nn.CrossEntropyLoss(weight=class_weight, **options)(logits, label)
    assert loss.item() == expected.item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_criterion_that_was_cast_keeps_its_class_weight(dtype):
    history, logits, label, index = random_case(6, 10, 4)
    criterion = CorrectnessRankingLoss(history, weight=0, class_weight=torch.tensor([1.0, 2.0, 0.5, 3.0])).to(dtype)
    loss = criterion(logits.to(dtype), label, index)
    expected = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 3.0]))(logits.to(dtype).float(), label)
    assert loss.item() == expected.item()


def test_ranking_loss_is_linear_in_scale():
    confidence, rate = torch.rand(9), torch.rand(9)
    assert ranking_loss(2 * confidence, 2 * rate).item() == pytest.approx(2 * ranking_loss(confidence, rate).item())


def test_wrong_input():
    criterion = CorrectnessRankingLoss(CorrectnessHistory(10))
    logits, label, index = torch.randn(4, 3), torch.zeros(4, dtype=torch.int64), torch.arange(4)
    with pytest.raises(ValueError, match=r"at least 2 classes, but got \(4, 1\)"):
        criterion(logits[:, :1], label, index)
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
    with pytest.raises(ValueError, match="weight to be a number >= 0, but got -1"):
        CorrectnessRankingLoss(CorrectnessHistory(10), weight=-1)

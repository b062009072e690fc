"""Every form of a batch against a loop over its samples and elements in plain Python."""

import math
import re
from fractions import Fraction
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_loss import naive_ranking_loss
from torch.nn import functional

from confrank import CorrectnessHistory, CorrectnessRanking, CorrectnessRankingLoss
from confrank.confidence import CONFIDENCES
from confrank.forms import label_of_sample, read_batch

IGNORED, NUM_SAMPLES, RESOLUTION = -100, 30, 1000
# The shape of a sample's logits and, for class labels, of its labels.
BINARY = {"one logit": (), "one column": (1,), "multi-label": (4,), "masks": (2, 3, 2)}
CLASSES = {"one class": (3,), "tokens": (3, 5), "pixels": (4, 2, 3)}
FORMS = [*BINARY, *CLASSES]


def case(form, seed, size=6):
    """A history with some past, logits, labels of which some are ignored, and indices without repeats."""
    generator = torch.Generator().manual_seed(seed)
    shape = (size, *(BINARY | CLASSES)[form])
    logits = 3 * torch.randn(shape, dtype=torch.float64, generator=generator)
    if form in BINARY:
        label = torch.randint(0, 2, shape, generator=generator).double()
    else:
        label = torch.randint(0, shape[1], (size, *shape[2:]), generator=generator)
    label[torch.rand(label.shape, generator=generator) < 0.25] = IGNORED
    resolution = RESOLUTION if label[0].numel() > 1 else 1
    history = CorrectnessHistory(NUM_SAMPLES, resolution)
    history.examined.copy_(torch.randint(0, 6, (NUM_SAMPLES,), generator=generator))
    history.correct.copy_((torch.rand(NUM_SAMPLES, generator=generator) * history.examined * resolution).int())
    index = torch.randperm(NUM_SAMPLES, generator=generator)[:size]
    return history, logits, label, index


def elements(logits, label):
    """(class logits, class) of each element of one sample that is not ignored."""
    if logits.shape == label.shape:
        pairs = zip(logits.flatten().tolist(), label.flatten().tolist(), strict=True)
        return [([0.0, z], int(y)) for z, y in pairs if y != IGNORED]
    positions = product(*map(range, label.shape))
    every = [([logits[k, *at].item() for k in range(len(logits))], label[at].item()) for at in positions]
    return [(row, y) for row, y in every if y != IGNORED]


def probabilities(row):
    weights = [math.exp(z - max(row)) for z in row]
    return [weight / sum(weights) for weight in weights]


def naive_confidence(name, row):
    p = sorted(probabilities(row), reverse=True)
    entropy = -sum(q * math.log(q) for q in p if q) / math.log(len(p))
    return {"max_probability": p[0], "margin": p[0] - p[1], "negative_entropy": 1 - entropy}[name]


def mean(values):
    return sum(values) / len(values) if values else 0.0


def naive(name, history, logits, label, index):
    """(base, ranking, examined, correct): the two parts of the loss and the counters after the call."""
    samples = [elements(logits[i], label[i]) for i in range(len(logits))]
    kept = [i for i, sample in enumerate(samples) if sample]
    base = mean([-math.log(probabilities(row)[y]) for sample in samples for row, y in sample])
    confidence = [mean([naive_confidence(name, row) for row, _ in samples[i]]) for i in kept]
    examined, correct = history.examined.tolist(), history.correct.tolist()
    past = [(correct[index[i]], examined[index[i]] * history.resolution) for i in kept]
    ranking = naive_ranking_loss(confidence, [right / seen if seen else 0.0 for right, seen in past]) if kept else 0.0
    for i in kept:
        share = Fraction(sum(row.index(max(row)) == y for row, y in samples[i]), len(samples[i]))
        examined[index[i]] += 1
        correct[index[i]] += math.floor(share * history.resolution + Fraction(1, 2))
    return base, ranking, examined, correct


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 9), name=st.sampled_from(sorted(CONFIDENCES)))
def test_each_form_equals_a_naive_loop_and_records_each_sample_once(form, seed, size, name):
    history, logits, label, index = case(form, seed, size)
    expected = naive(name, history, logits, label, index)
    alone = CorrectnessRankingLoss(history, name, weight=0)(logits, label, index, record=False)
    ranking = CorrectnessRanking(history, name)(logits, label, index, record=False)
    total = CorrectnessRankingLoss(history, name, weight=0.7)(logits, label, index)
    assert alone.item() == pytest.approx(expected[0], abs=1e-6)
    assert ranking.item() == pytest.approx(expected[1], abs=1e-6)
    assert total.item() == pytest.approx(expected[0] + 0.7 * expected[1], abs=1e-6)
    assert history.examined.tolist() == expected[2]
    assert history.correct.tolist() == expected[3]
    rate = [right / max(1, seen) / history.resolution for seen, right in zip(*expected[2:], strict=True)]
    assert history.rate(torch.arange(NUM_SAMPLES)).tolist() == pytest.approx(rate, abs=1e-6)


@pytest.mark.parametrize(
    ("form", "name"),
    [*product(FORMS, ["negative_entropy"]), ("one class", "max_probability"), ("one class", "margin")],
)
def test_gradcheck(form, name):
    history, logits, label, index = case(form, 4)
    criterion = CorrectnessRankingLoss(history, name)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: criterion(z, label, index, record=False), logits)


@pytest.mark.parametrize(
    ("form", "name", "stretched"),
    [
        *product(["one class"], CONFIDENCES, [False, True]),
        *((form, "margin", False) for form in FORMS if form != "one class"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_compiled_as_one_graph_equals_eager(form, name, stretched):
    torch.compiler.reset()  # torch refuses to compile one function for many kinds of input
    history, logits, label, index = case(form, 5)
    label.view(-1)[1] = IGNORED
    twin = CorrectnessHistory(NUM_SAMPLES, history.resolution)
    twin.load_state_dict(history.state_dict())
    eager, to_compile = (CorrectnessRankingLoss(each, name, stretched=stretched) for each in (history, twin))
    compiled = torch.compile(to_compile, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        first, second = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        loss, other = eager(first, label, index), compiled(second, label, index)
        loss.backward()
        other.backward()
        assert other.item() == pytest.approx(loss.item(), abs=1e-12)
        torch.testing.assert_close(first.grad, second.grad)
    assert torch.equal(history.counts(), twin.counts())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("form", FORMS)
def test_captured_as_a_cuda_graph_equals_eager(form):
    history, logits, label, index = case(form, 6)
    eager = CorrectnessRankingLoss(history)
    twin = CorrectnessHistory(NUM_SAMPLES, history.resolution)
    twin.load_state_dict(history.state_dict())
    captured = CorrectnessRankingLoss(twin).cuda()
    static = logits.float().cuda().requires_grad_()
    batch = label.cuda(), index.cuda()
    try:
        torch.cuda.set_sync_debug_mode("error")
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            captured(static, *batch, record=False).backward()
        torch.cuda.current_stream().wait_stream(stream)
        graph, static.grad = torch.cuda.CUDAGraph(), None
        with torch.cuda.graph(graph):
            loss = captured(static, *batch)
            loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for _ in range(3):
        plain = logits.float().requires_grad_()
        expected = eager(plain, label, index)
        expected.backward()
        static.grad.zero_()
        graph.replay()
        assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
        torch.testing.assert_close(static.grad.cpu(), plain.grad, atol=1e-5, rtol=1e-4)
    assert torch.equal(history.counts(), twin.counts().cpu())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"stretched": True}, {"weight": 0.0}])
def test_no_value_is_read_in_a_step(form, options):
    """Tensors without values raise where one of them is read, or where a shape depends on one."""
    history, logits, label, index = case(form, 12)
    criterion = CorrectnessRankingLoss(history, **options).to("meta")
    logits, label, index = (values.to("meta") for values in (logits, label, index))
    logits.requires_grad_()
    loss = criterion(logits, label, index)
    loss.backward()
    with pytest.raises(RuntimeError):
        loss.item()
    assert logits.grad.shape == logits.shape


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["max_probability", "negative_entropy"])
def test_each_form_under_autocast(form, name):
    history, logits, label, index = case(form, 7)
    logits = logits.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = CorrectnessRankingLoss(history, name)(logits, label, index)
    loss.backward()
    assert loss.dtype == torch.float32
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"stretched": True}, {"confidence": "negative_entropy"}])
def test_an_empty_batch_of_each_form_costs_nothing(form, options):
    history, logits, label, index = case(form, 8)
    before, criterion = history.counts(), CorrectnessRankingLoss(history, **options)
    empty = logits[:0].requires_grad_()
    loss = criterion(empty, label[:0], index[:0])
    loss.backward()
    assert loss.shape == () and loss.item() == 0 and empty.grad.shape == empty.shape
    ignored = logits.clone().requires_grad_()
    loss = criterion(ignored, torch.full_like(label, IGNORED), index)
    loss.backward()
    assert loss.item() == 0 and not ignored.grad.any()
    assert torch.equal(history.counts(), before)


def test_samples_without_elements_are_ignored():
    history = CorrectnessHistory(4, RESOLUTION)
    for options in ({}, {"ignore_index": None}):
        criterion = CorrectnessRankingLoss(history, **options)
        loss = criterion(torch.zeros(4, 3, 0), torch.zeros(4, 0, dtype=torch.int64), torch.arange(4))
        assert loss.item() == 0
    assert history.examined.sum() == 0


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32, torch.uint8])
def test_one_logit_is_two_classes(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    logit, label = torch.randn(5, generator=generator), torch.tensor([0, 1, 1, 0, 1])
    one, two = CorrectnessHistory(5), CorrectnessHistory(5)
    for _ in range(2):
        first = CorrectnessRankingLoss(one)(logit.reshape(shape), label.to(dtype).reshape(shape), torch.arange(5))
        pair = torch.stack((torch.zeros(5), logit), dim=1)
        second = CorrectnessRankingLoss(two)(pair, label, torch.arange(5))
        assert first.item() == pytest.approx(second.item(), abs=1e-6)
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name]), name


@pytest.mark.filterwarnings("ignore")
def test_soft_labels_that_cannot_be_read_make_the_loss_nan():
    torch.compiler.reset()
    criterion = CorrectnessRankingLoss(CorrectnessHistory(4, RESOLUTION))
    compiled = torch.compile(criterion, fullgraph=True, backend="eager")
    label = torch.tensor([[0.0, 1.0], [1.0, IGNORED]])
    assert compiled(torch.randn(2, 2), label, torch.arange(2)).isfinite()
    label[0] = torch.tensor([0.3, 0.7])
    assert compiled(torch.randn(2, 2), label, torch.arange(2)).isnan()


def test_weights_of_positive_labels_of_which_some_are_ignored():
    history, logits, label, index = case("multi-label", 9)
    past, *_ = case("multi-label", 9)
    weights = [1.0, 2.0, 3.0, 0.5]
    known = (label != IGNORED).double()
    losses = functional.binary_cross_entropy_with_logits(
        logits, label, weight=known, pos_weight=torch.tensor(weights, dtype=torch.float64), reduction="sum"
    )
    loss = losses / known.sum() + 0.7 * CorrectnessRanking(history, "margin")(logits, label, index)
    parts = []
    for row, answers in zip(logits.tolist(), label.tolist(), strict=True):
        for z, y, weight in zip(row, answers, weights, strict=True):
            if y != IGNORED:
                parts.append(weight * math.log1p(math.exp(-z)) if y else math.log1p(math.exp(z)))
    _, ranking, examined, correct = naive("margin", past, logits, label, index)
    assert loss.item() == pytest.approx(mean(parts) + 0.7 * ranking, abs=1e-6)
    assert (history.examined.tolist(), history.correct.tolist()) == (examined, correct)


def test_dense_options_mean_what_they_mean_in_cross_entropy():
    history, logits, label, index = case("pixels", 10)
    options = {"label_smoothing": 0.1}
    weight = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    loss = CorrectnessRankingLoss(history, weight=0, class_weight=weight, **options)(logits, label, index)
    assert loss.item() == pytest.approx(
        functional.cross_entropy(logits, label, weight=weight, **options).item(), abs=1e-12
    )


def test_audit_sees_other_labels_of_a_multi_label_sample():
    history = CorrectnessHistory(3, RESOLUTION)
    ranking = CorrectnessRanking(history)
    label = torch.tensor([[1.0, 0, 0], [0, 1, 1], [0, IGNORED, 0]])
    for _ in range(2):
        ranking(torch.randn(3, 3), label, torch.arange(3))
    assert history.audit(epochs=2).ok
    ranking(torch.randn(3, 3), label[[1, 0, 2]], torch.arange(3))
    assert history.audit(epochs=3).conflicting_labels == [0, 1]


def test_every_set_of_labels_has_another_number():
    every = torch.tensor(list(product([0.0, 1.0], repeat=12)))
    number = label_of_sample(read_batch(torch.zeros_like(every), every, IGNORED))
    assert len(number.unique()) == len(every)
    assert number.min() >= 0 and number.max() < 2**62
    history = CorrectnessHistory(1, RESOLUTION)
    for positions in ([2, 3], [4]):  # 3 x 3 + 4 x 4 = 5 x 5
        label = torch.zeros(1, 6)
        label[0, positions] = 1
        CorrectnessRanking(history)(torch.randn(1, 6), label, torch.tensor([0]))
    assert history.audit().conflicting_labels == [0]


def test_forms_that_are_unclear():
    index, shares = torch.arange(4), CorrectnessHistory(10, RESOLUTION)
    plain, criterion = CorrectnessRankingLoss(CorrectnessHistory(10)), CorrectnessRankingLoss(shares)
    multi, token = torch.randn(4, 3), torch.randn(4, 3, 5)
    with pytest.raises(ValueError, match=r"counts shares for labels of shape \(4, 3\).*resolution=1000"):
        plain(multi, torch.zeros(4, 3), index)
    with pytest.raises(ValueError, match=r"label.float\(\), and one-hot labels with label.argmax\(1\)"):
        criterion(multi, torch.zeros(4, 3, dtype=torch.int64), index)
    with pytest.raises(
        ValueError,
        match=r"0 and 1 for logits .* but got 0.3; for soft labels \(mixup.* my_loss\(logits, soft_label\) \+",
    ):
        criterion(multi, torch.full((4, 3), 0.3), index)
    with pytest.raises(ValueError, match=r"got \(4, 2\) of torch.float32; targets .* my_loss\(logits, target\) \+"):
        criterion(multi, torch.zeros(4, 2), index)
    for other in (-1, 3):
        with pytest.raises(ValueError, match=rf"labels 0 and 1 for .* but got {other}; convert two other values"):
            criterion(multi[:, 0], torch.tensor([0, 1, other, 0]), index)
    with pytest.raises(ValueError, match=r"shape \(4, 5\) .* but got \(4, 7\) of torch.int64; resize the logits to"):
        criterion(token, torch.zeros(4, 7, dtype=torch.int64), index)
    with pytest.raises(ValueError, match=r"but got \(4, 5, 3\) .* convert one-hot labels with label.argmax\(-1\)"):
        criterion(token, torch.zeros(4, 5, 3, dtype=torch.int64), index)
    with pytest.raises(ValueError, match=r"one label 0 or 1 for each of the 4 logits, but got shape \(4, 2\)"):
        criterion(multi[:, 0], torch.zeros(4, 2), index)
    with pytest.raises(
        ValueError, match=r"shape \(4,\) for logits \(4, 3\), but got \(4,\) of torch.float32; convert"
    ):
        criterion(multi, torch.zeros(4), index)
    with pytest.raises(ValueError, match=r"shape \(4, 5\) .* but got \(4, 3\) .* second: logits.movedim\(-1, 1\)"):
        criterion(token, torch.zeros(4, 3, dtype=torch.int64), index)
    with pytest.raises(ValueError, match=r"at least 2 classes in their second .*label.unsqueeze\(1\).float\(\)"):
        criterion(token[:, :1], torch.zeros(4, 5, dtype=torch.int64), index)
    mask = torch.zeros(4, 1, 6, 6)
    for label, converted in ((mask[:, 0], "unsqueeze(1).float()"), (mask.long(), "float()")):
        with pytest.raises(ValueError, match=re.escape(f"shape of the logits, as floats: label.{converted}")):
            criterion(torch.randn(4, 1, 6, 6), label, index)
    for label, converted in ((mask.long(), "squeeze(1)"), (mask, "squeeze(1).long()")):
        with pytest.raises(ValueError, match=re.escape(f"convert them with label.{converted}") + "$"):
            criterion(torch.randn(4, 3, 6, 6), label, index)
    with pytest.raises(ValueError, match=r"convert them with label.squeeze\(1\)$"):
        criterion(multi, torch.zeros(4, 1, dtype=torch.int64), index)
    with pytest.raises(ValueError, match=r"but got labels 0 and 1; .*pos_weight=...\)\(logits, label\) \+"):
        CorrectnessRankingLoss(shares, label_smoothing=0.1)(multi, torch.zeros(4, 3), index)
    one, first = torch.zeros(1, dtype=torch.int64), index[:1]
    for squeezed in ((multi[:1], one.squeeze(), first), (multi[0, 0], one, first), (multi[:1], one, first.squeeze())):
        with pytest.raises(ValueError, match=r"but got (shape )?\(\) of .* a batch of one .*: use squeeze\(1\)$"):
            plain(*squeezed)
    assert shares.examined.sum() == 0

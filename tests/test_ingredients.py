"""Each ingredient of a recipe against a naive form, and a killed run with all of them against one that was not."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from confrank import CorrectnessHistory, CorrectnessRankingLoss, recipes
from confrank.config import RunConfig, learning_rate
from confrank.data import load
from confrank.errors import InputError
from confrank.methods import get, mirrored_probabilities, predict_split
from confrank.models import CosineHead, create
from confrank.predictions import load_predictions
from confrank.runs.checkpoint import load_latest
from confrank.runs.folder import RunFolder, load_config
from confrank.runs.trained import load_run, predict
from confrank.training import Run, train
from confrank.training.averaging import EMA_DECAY, WeightAverage, estimate_statistics
from confrank.training.mixing import Mixing, epoch_mixing, mix, mixed_loss
from confrank.training.sharpness import Sharpness
from confrank.training.soft_labels import DECAY, SoftLabels
from confrank.training.store import fetch

CPU = torch.device("cpu")
EVERYTHING = {
    "schedule": "cosine",
    "averaging": "swa",
    "averaging_start": 0.5,
    "averaging_lr": 0.02,
    "sam": 0.05,
    "mix": "both",
    "mix_weight": 0.5,
    "soft_labels": 0.8,
    "augment": "trivial",
    "head": "cosine",
    "mirror": True,
}


def tiny(**settings):
    return RunConfig(**{"epochs": 4, "batch_size": 80, "seed": 5, "lr": 0.05, **settings})


@pytest.fixture(scope="module")
def digits():
    """Three steps an epoch."""
    data = load("digits")
    return replace(data, train=data.train.select(np.arange(200)))


def finish(run):
    while not run.finished:
        run.step()
        if run.next_step == run.num_steps:
            run.finish_epoch()
    return run


def test_the_first_epoch_has_the_rate_of_the_schedule(digits):
    """Averaging starts in the first epoch if there is only one, and it has a rate of its own."""
    run = Run(tiny(epochs=1, averaging="swa", averaging_lr=0.02), digits, CPU)
    assert run.learning_rate.item() == pytest.approx(0.02)
    run.load_state(*run.snapshot())
    assert run.learning_rate.item() == pytest.approx(0.02)


def test_schedules():
    rates = {
        kind: [learning_rate(tiny(schedule=kind), epoch) for epoch in range(4)] for kind in ("cosine", "constant")
    }
    weights = [nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.SGD(weights, lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    expected = []
    for _ in range(4):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates["cosine"] == pytest.approx(expected)
    assert rates["constant"] == [0.05] * 4
    averaged = tiny(schedule="cosine", averaging="swa", averaging_start=0.5, averaging_lr=0.02)
    assert [learning_rate(averaged, epoch) for epoch in range(4)] == pytest.approx([*expected[:2], 0.02, 0.02])
    assert learning_rate(replace(averaged, averaging="none"), 3) == pytest.approx(expected[3])


def test_swa_is_the_mean_of_the_weights_of_its_epochs(digits):
    config = tiny(averaging="swa", averaging_start=0.5, method="baseline")
    run, stored = Run(config, digits, CPU), []
    while run.epoch < 3:
        run.step()
        if run.next_step == run.num_steps:
            stored.append({name: values.detach().clone() for name, values in run.model.named_parameters()})
            run.finish_epoch()
    for _ in range(3):
        run.step()
    stored.append({name: values.detach().clone() for name, values in run.model.named_parameters()})
    run.finish_epoch()
    for name, values in run.model.named_parameters():
        assert torch.allclose(values, (stored[2][name] + stored[3][name]) / 2, atol=1e-6), name
        assert not torch.equal(values, stored[3][name])
    assert run.average.count == 2
    # The statistics of the averaged network, by torch's own tool: it weighs batches equally, so there are two of 100.
    estimate_statistics(run.model, (fetch(run.store, run.draws, start, 100).image for start in (0, 100)))
    twin = create("small", 10, in_channels=1)
    twin.load_state_dict(run.model.state_dict())
    order = run.draws.order.numpy()
    images = torch.tensor(
        ((digits.train.images[order] / 255 - 0.4) / 0.25).transpose(0, 3, 1, 2), dtype=torch.float32
    )
    for layer in twin.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.num_batches_tracked = torch.tensor(0)
    torch.optim.swa_utils.update_bn(images.split(100), twin)
    for name, values in run.model.named_buffers():
        assert torch.allclose(values, twin.state_dict()[name], rtol=1e-4), name


def test_statistics_are_over_clean_and_mixed_images_as_in_training(digits):
    run = Run(tiny(averaging="swa", averaging_start=0.5, mix="both"), digits, CPU)
    finish(run)
    layer = next(module for module in run.model.modules() if isinstance(module, nn.BatchNorm2d))
    inputs: list[torch.Tensor] = []
    layer.register_forward_hook(lambda module, given, output: inputs.append(given[0]))
    size, clean, both, num_seen = run.config.batch_size, 0.0, 0.0, 0
    for step in range(run.num_steps):
        image = fetch(run.store, run.draws, step * size, min(size, run.num_samples - step * size)).image
        mixed, _ = mix(image, run.mixing.at(torch.tensor([step])))
        run.model.eval()(image)
        run.model(mixed)
        clean += len(image) * inputs[-2].var((0, 2, 3))
        both += len(image) * torch.cat(inputs[-2:]).var((0, 2, 3))
        num_seen += len(image)
    assert torch.allclose(layer.running_var, both / num_seen, rtol=1e-4)
    assert not torch.allclose(layer.running_var, clean / num_seen, rtol=1e-2)  # the means are the same


def test_ema_follows_the_weights_from_its_start_on(digits):
    run = Run(tiny(averaging="ema", averaging_start=0.5), digits, CPU)
    mean = None
    while run.epoch < 3:
        run.step()
        weights = run.model.head.weight.detach().clone()
        mean = weights if run.epoch < 2 or mean is None else EMA_DECAY * mean + (1 - EMA_DECAY) * weights
        if run.next_step == run.num_steps:
            run.finish_epoch()
    position = [name for name, _ in run.model.named_parameters()].index("head.weight")
    assert torch.allclose(run.average.mean[position], mean, atol=1e-6)
    finish(run)
    assert torch.equal(run.model.head.weight, run.average.mean[position])


def test_ema_over_all_steps_leaves_out_the_initial_weights(digits, monkeypatch):
    """It is the plain mean of the first four steps, and a moving average after them."""
    monkeypatch.setattr("confrank.training.run.EMA_DECAY", 0.75)
    run, seen = Run(tiny(averaging="ema", averaging_start=0.0), digits, CPU), []
    position = [name for name, _ in run.model.named_parameters()].index("head.weight")
    mean = torch.zeros(())
    while len(seen) < 9:
        run.step()
        seen.append(run.model.head.weight.detach().clone())
        mean = torch.stack(seen).mean(0) if len(seen) <= 4 else 0.75 * mean + 0.25 * seen[-1]
        assert torch.allclose(run.average.mean[position], mean, atol=1e-6), len(seen)
        if run.next_step == run.num_steps:
            run.finish_epoch()


def test_an_average_in_any_loop():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    average, members = WeightAverage(model), []
    for value in (1.0, 2.0, 6.0):
        nn.init.constant_(model[0].weight, value)
        members.append(value)
        average.add()
        assert average.mean[0].flatten().tolist() == pytest.approx([sum(members) / len(members)] * 6)
    average.apply()
    batches = [torch.randn(4, 3), torch.randn(2, 3)]
    estimate_statistics(model, batches)
    outputs = [model[0](batch) for batch in batches]
    expected = (4 * outputs[0].mean(0) + 2 * outputs[1].mean(0)) / 6
    assert torch.allclose(model[1].running_mean, expected)
    assert model[1].momentum == 0.1
    estimate_statistics(nn.Linear(3, 2), iter(int, 1))  # without batch norm, nothing is read


def test_an_ema_in_any_loop():
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.weight)
    average, mean = WeightAverage(model), 0.0
    for number, share in enumerate((0.25, torch.tensor(0.5), None)):
        nn.init.constant_(model.weight, number + 1.0)
        average.follow() if share is None else average.follow(share)
        share = 0.001 if share is None else float(share)
        mean = (1 - share) * mean + share * (number + 1)
        assert average.mean[0].flatten().tolist() == pytest.approx([mean] * 6)


def test_the_state_of_an_average_returns():
    first, second = (WeightAverage(nn.Linear(3, 2)) for _ in range(2))
    for _ in range(3):
        first.add()
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.count == 3
    for one, other in zip(first.mean, second.mean, strict=True):
        assert torch.equal(one, other)
    for other in (nn.Linear(1, 2), nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))):
        with pytest.raises(InputError, match="average of a network with weights of the same shapes, but got other"):
            WeightAverage(other).load_state_dict(first.state_dict())


def test_statistics_from_a_data_loader():
    images, model = torch.randn(6, 3), nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2), nn.BatchNorm1d(2))
    model[2].eval()
    estimate_statistics(model, DataLoader(TensorDataset(images, torch.arange(6)), batch_size=3))
    assert torch.allclose(model[0].running_mean, images.mean(0))
    assert torch.allclose(model[0].running_var, (images[:3].var(0) + images[3:].var(0)) / 2)
    assert not model[2].running_mean.any()  # this layer is in evaluation mode
    model[0].eval()
    estimate_statistics(model, iter(int, 1))  # so are all of them: nothing is read


def test_statistics_that_cannot_be_estimated():
    model = nn.BatchNorm1d(3)
    with pytest.raises(InputError, match="at least one batch of images, but got none; a generator can be read only"):
        estimate_statistics(model, iter([]))
    with pytest.raises(InputError, match=r"tuples or lists that start with one, but got dict; pass a generator of"):
        estimate_statistics(model, [{"image": torch.randn(4, 3)}])
    assert model.momentum == 0.1
    with pytest.raises(InputError, match=r"in training mode, but got evaluation mode; call model.train\(\) before"):
        estimate_statistics(model.eval(), [torch.randn(4, 3)])


def test_mixing_is_drawn_from_seed_and_epoch():
    first, again = (epoch_mixing("both", 1, 2, 400, 32, 24) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first.tensors, again.tensors, strict=True))
    for other in ((2, 2), (1, 3)):
        assert not torch.equal(first.share, epoch_mixing("both", *other, 400, 32, 24).share)
    assert 160 < first.cuts.sum() < 240
    assert first.share.mean().item() == pytest.approx(0.5, abs=0.02)
    assert first.share.var().item() == pytest.approx(1 / 84, rel=0.3)  # Beta(10, 10)
    top, bottom, left, right = first.box.T
    assert (top >= 0).all() and (bottom <= 32).all() and (left >= 0).all() and (right <= 24).all()
    assert (top <= bottom).all() and (left <= right).all()
    assert not epoch_mixing("mixup", 1, 2, 400, 32, 24).cuts.any()
    assert epoch_mixing("cutmix", 1, 2, 400, 32, 24).cuts.all()


@pytest.mark.parametrize("cuts", [False, True])
def test_mixed_images_and_their_loss_against_numpy(cuts):
    image, logits, label = torch.randn(5, 3, 8, 6), torch.randn(5, 4), torch.tensor([0, 3, 1, 2, 3])
    drawn = Mixing(torch.tensor([0.3]), torch.tensor([[1, 5, 2, 6]]), torch.tensor([cuts]))
    mixed, share = mix(image, drawn)
    before = image.numpy()
    expected = np.empty_like(before)
    for row in range(5):
        other = before[row - 1]
        if cuts:
            expected[row] = before[row]
            expected[row, :, 1:5, 2:6] = other[:, 1:5, 2:6]
        else:
            expected[row] = 0.3 * before[row] + 0.7 * other
    kept = 1 - 16 / 48 if cuts else 0.3
    assert np.allclose(mixed.numpy(), expected, atol=1e-6)
    assert share.item() == pytest.approx(kept)
    soft = np.zeros((5, 4), dtype=np.float32)
    for row in range(5):
        soft[row, label[row]] += kept
        soft[row, label[row - 1]] += 1 - kept
    assert mixed_loss(logits, label, share).item() == pytest.approx(
        cross_entropy(logits, torch.from_numpy(soft)).item(), rel=1e-5
    )


@pytest.mark.parametrize("step", [0, 11])
def test_the_mixing_of_a_step_by_number_and_by_tensor(step):
    drawn = epoch_mixing("both", 1, 2, 12, 8, 6).to("cpu")
    by_number, by_tensor = drawn.at(step), drawn.at(torch.tensor([step]))
    for one, other, every in zip(by_number.tensors, by_tensor.tensors, drawn.tensors, strict=True):
        assert torch.equal(one, other) and torch.equal(one[0], every[step])
    image = torch.randn(5, 3, 8, 6)
    assert torch.equal(mix(image, by_number)[0], mix(image, by_tensor)[0])


def test_vectors_are_mixed_as_images_of_one_pixel():
    vector, drawn = torch.randn(5, 7), epoch_mixing("mixup", 0, 0, 3, 1, 1).at(2)
    mixed, share = mix(vector[:, :, None, None], drawn)
    assert torch.allclose(mixed[:, :, 0, 0], share * vector + (1 - share) * vector[[4, 0, 1, 2, 3]])
    with pytest.raises(InputError, match=r"images \[b, c, h, w\] to mix, but got .* shape \[5, 7\]; reshape"):
        mix(vector, drawn)


def test_mixing_that_does_not_fit():
    drawn = epoch_mixing("both", 0, 0, 6, 8, 6)
    with pytest.raises(InputError, match=r"expected the mixing of one step, but got that of 6; use mixing.at"):
        mix(torch.randn(5, 3, 8, 6), drawn)
    with pytest.raises(InputError, match=r"expected images of 8 x 6, for which .* was drawn, but got 6 x 8; give"):
        mix(torch.randn(5, 3, 6, 8), drawn.at(0))
    for step in (-1, 6):
        with pytest.raises(InputError, match=rf"expected step to be within 0\.\.5, but got {step}"):
            drawn.at(step)
    with pytest.raises(ValueError, match="expected a kind of mixing among mixup, cutmix, both, but got 'mixxup'"):
        epoch_mixing("mixxup", 0, 0, 6, 8, 6)


def with_twin(config, digits):
    run, twin = (Run(config, digits, CPU) for _ in range(2))
    return run, twin, torch.optim.SGD(twin.model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def batch_of(run, digits, step):
    rows = run.draws.order[80 * step : 80 * (step + 1)]
    pixels = torch.from_numpy(digits.train.images)[rows].permute(0, 3, 1, 2)
    return rows, (pixels / 255 - 0.4) / 0.25, torch.from_numpy(digits.train.labels)[rows]


def test_a_step_with_mixing_against_a_plain_loop(digits):
    config = tiny(method="crl-softmax", mix="mixup", mix_weight=0.7)
    run, twin, optimizer = with_twin(config, digits)
    for step in range(2):
        rows, image, label = batch_of(twin, digits, step)
        share = twin.mixing.share[step]
        mixed = share * image + (1 - share) * image.roll(1, 0)
        logits = twin.model(torch.cat((image, mixed)))
        soft = share * nn.functional.one_hot(label, 10) + (1 - share) * nn.functional.one_hot(label.roll(1), 10)
        loss = twin.criterion(logits[:80], label, rows) + 0.7 * cross_entropy(logits[80:], soft)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step()
        assert run.step_loss[step].item() == pytest.approx(loss.item(), rel=1e-5)
    assert torch.equal(run.history.correct, twin.history.correct)
    assert run.history.examined.sum() == 160


@pytest.mark.parametrize("mix", ["none", "mixup"])
def test_soft_labels_against_a_plain_loop(digits, mix):
    """Three epochs: the mean of a sample's predictions starts with the first, and its share is 0, 0.3, 0.6."""
    config = tiny(method="crl-softmax", mix=mix, mix_weight=0.7, soft_labels=0.6, epochs=3, lr_drops=())
    run, twin, optimizer = with_twin(config, digits)
    earlier = {}
    for epoch in range(3):
        for step in range(3):
            batch = fetch(run.store, run.draws, 80 * step, run.next_size)
            rows, share = batch.index.tolist(), 0.3 * epoch
            hard = nn.functional.one_hot(batch.label, 10).double()
            known = torch.stack([earlier[row] for row in rows]) if epoch else hard
            target = (1 - share) * hard + share * known
            image, kept = batch.image, 1.0
            if mix != "none":
                kept = run.mixing.share[step]
                image = torch.cat((image, kept * image + (1 - kept) * image.roll(1, 0)))
            logits = twin.model(image)
            clean = logits[: len(rows)]
            loss = twin.criterion(clean, batch.label, batch.index) - cross_entropy(clean, batch.label)
            loss = loss - (target * clean.log_softmax(1)).sum(1).mean()
            if mix != "none":
                both = kept * target + (1 - kept) * target.roll(1, 0)
                loss = loss - 0.7 * (both * logits[len(rows) :].log_softmax(1)).sum(1).mean()
            for row, new in zip(rows, clean.detach().double().softmax(1), strict=True):
                earlier[row] = DECAY * earlier[row] + (1 - DECAY) * new if row in earlier else new
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step()
            assert run.step_loss[step].item() == pytest.approx(loss.item(), rel=1e-4)
        run.finish_epoch()
    assert torch.allclose(run.soft_labels.mean.double(), torch.stack([earlier[row] for row in range(200)]), atol=1e-4)


def test_a_sample_that_the_first_epoch_leaves_out_keeps_its_hard_label_until_it_is_seen():
    soft, random = SoftLabels(4, 3), torch.Generator().manual_seed(0)
    label, earlier = torch.tensor([2, 0, 1, 2]), {}
    seen = [[0, 1], [1, 2, 0], [2, 0, 1]]  # sample 2 joins in the second epoch, sample 3 never
    for epoch, rows in enumerate(seen):
        soft.enter(epoch, epochs=3, final=0.6)
        given = soft.of(label, torch.arange(4))
        for row in range(4):
            hard = [float(label[row] == number) for number in range(3)]
            share = 0.3 * epoch
            wanted = [(1 - share) * a + share * b for a, b in zip(hard, earlier.get(row, hard), strict=True)]
            assert given[row].tolist() == pytest.approx(wanted, abs=1e-6)
        logits = torch.randn(len(rows), 3, generator=random)
        soft.record(logits, torch.tensor(rows))
        for row, new in zip(rows, logits.softmax(1).tolist(), strict=True):
            old = earlier.get(row, new)
            earlier[row] = [0.9 * a + 0.1 * b for a, b in zip(old, new, strict=True)]
    assert not soft.mean[3].any()


def test_the_state_of_soft_labels_returns():
    first, second = SoftLabels(4, 3, device="cpu"), SoftLabels(4, 3)
    first.enter(2, epochs=3, final=0.6)
    first.record(torch.randn(2, 3), torch.tensor([0, 2]))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    label, index = torch.tensor([1, 2, 0, 1]), torch.arange(4)
    assert torch.equal(first.of(label, index), second.of(label, index))
    assert second.share.item() == pytest.approx(0.6)
    with pytest.raises(InputError, match=r"expected final to be a share in \[0, 1\], but got 80"):
        first.enter(0, 3, final=80)


def test_soft_labels_that_do_not_fit_into_memory():
    with pytest.raises(InputError, match=r"expected 40,000,000.0 GB of memory for .* and 10,000,000 classes"):
        SoftLabels(10**9, 10**7)


def test_soft_labels_need_cross_entropy(tmp_path, command, capsys):
    """With the aleatoric loss, whose noise may hide a label, the loss could fall far below 0."""
    command("train", "--method", "aleatoric-mc", "--soft-labels", 0.8, "--out", tmp_path / "run", code=2)
    expected = "expected a method with cross-entropy for soft labels, but got aleatoric-mc; choose another --method,"
    assert f"{expected} or set --soft-labels to 0" in capsys.readouterr().err


def test_sam_against_two_steps_written_by_hand(digits):
    config = tiny(method="crl-softmax", sam=0.1)
    run, twin, optimizer = with_twin(config, digits)
    for step in range(3):
        rows, image, label = batch_of(twin, digits, step)
        optimizer.zero_grad()
        logits = twin.model(image)
        loss = twin.criterion(logits, label, rows, record=False)
        loss.backward()
        statistics = [values.clone() for values in twin.model.buffers()]
        weights = [values.detach().clone() for values in twin.model.parameters()]
        gradients = [values.grad.clone() for values in twin.model.parameters()]
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        with torch.no_grad():
            for values, gradient in zip(twin.model.parameters(), gradients, strict=True):
                values += 0.1 * gradient / norm
        optimizer.zero_grad()
        twin.criterion(twin.model(image), label, rows, record=False).backward()
        with torch.no_grad():
            for values, before in zip(twin.model.parameters(), weights, strict=True):
                values.copy_(before)
            for values, before in zip(twin.model.buffers(), statistics, strict=True):
                values.copy_(before)
        optimizer.step()
        twin.history.update(rows, logits.argmax(1) == label, label)
        run.step()
        assert run.step_loss[step].item() == pytest.approx(loss.item(), rel=1e-4)
    for name, values in run.model.state_dict().items():
        assert torch.allclose(values, twin.model.state_dict()[name], atol=1e-4), name
    assert torch.equal(run.history.correct, twin.history.correct)
    assert run.history.audit(epochs=1).ok


def test_sam_in_any_loop():
    model, history = nn.Linear(4, 3), CorrectnessHistory(8)
    criterion = CorrectnessRankingLoss(history)
    sharpness = Sharpness(model.parameters(), 0.5, history.buffers())
    image, label, index = torch.randn(8, 4), torch.arange(8) % 3, torch.arange(8)
    before = model.weight.detach().clone()
    sharpness.remember()
    criterion(model(image), label, index).backward()
    sharpness.climb()
    steps = [(now - then).detach() for now, then in zip(model.parameters(), sharpness._weights, strict=True)]
    moved = math.sqrt(sum(float(step.square().sum()) for step in steps))
    assert moved == pytest.approx(0.5, rel=1e-4)
    assert not history.examined.any()  # the second pass ranks by the rates that the first one used
    criterion(model(image), label, index).backward()
    sharpness.descend()
    assert torch.equal(model.weight, before)
    assert history.examined.tolist() == [1] * 8


def test_sam_out_of_order():
    model = nn.Linear(4, 3)
    for rho in (-0.05, math.inf, math.nan):
        with pytest.raises(InputError, match="expected rho to be a finite number of at least 0, but got"):
            Sharpness(model.parameters(), rho)
    with pytest.raises(InputError, match=r"no parameter has one; call loss.backward\(\) before `climb`"):
        Sharpness(model.parameters(), 0.5).climb()
    statistics = torch.ones(3)
    sharpness = Sharpness(model.parameters(), 0.5, [statistics])
    model(torch.randn(2, 4)).sum().backward()
    with pytest.raises(InputError, match="there are none; call `remember` before the first pass"):
        sharpness.climb()
    sharpness.remember()
    sharpness.climb()
    assert statistics.tolist() == [1, 1, 1]
    sharpness.descend()
    with pytest.raises(InputError, match="call `remember` before the first pass"):
        sharpness.climb()


@pytest.mark.parametrize("shape", [(6,), (5, 6), (5, 3, 6)])
def test_cosine_head_against_numpy(shape):
    head, vector = CosineHead(6, 4), torch.randn(shape)
    weight, features = head.weight.detach().numpy(), vector.numpy()
    cosine = features @ weight.T / np.linalg.norm(features, axis=-1)[..., None] / np.linalg.norm(weight, axis=1)
    assert np.allclose(head(vector).detach().numpy(), 8 * cosine, atol=1e-5)


def test_cosine_head_of_a_network():
    network = create("small", 10, in_channels=1, head="cosine")
    assert network(torch.randn(3, 1, 8, 8)).abs().max() <= 8
    with pytest.raises(ValueError, match="expected a head among linear, cosine, but got 'round'"):
        create("small", 10, head="round")
    with pytest.raises(ValueError, match="for a cosine head, but got 'a:b'; set `head` to linear"):
        create("a:b", 10, head="cosine")
    with pytest.raises(
        ValueError, match=r"a linear head with your own network, but got cosine; .* set `head` to linear"
    ):
        Run(tiny(head="cosine"), load("digits"), CPU, network=network)


@pytest.mark.parametrize("method", ["crl-margin", "mcdropout"])
def test_mirrored_prediction(digits, method):
    model = get(method).network("small", 10, 1)
    few = digits.test.select(np.arange(40))
    flipped = replace(few, images=np.ascontiguousarray(few.images[:, :, ::-1]))
    tables = []
    for split in (few, flipped):
        one = predict_split(get(method), model, split, digits.mean, digits.std)
        tables.append(one.probabilities if one.logits is None else torch.tensor(one.logits).softmax(1).numpy())
    both = predict_split(get(method), model, few, digits.mean, digits.std, mirror=True)
    assert both.logits is None and both.metadata["mirror"] == "true"
    assert np.allclose(both.probabilities.sum(axis=1), 1, atol=1e-6)
    if method == "crl-margin":
        mean = (tables[0] + tables[1]) / 2
        assert np.allclose(both.probabilities, mean, atol=1e-6)
        ordered = np.sort(mean, axis=1)
        assert np.allclose(both.confidence, ordered[:, -1] - ordered[:, -2], atol=1e-6)


def test_mirrored_probabilities_of_any_network(digits):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10)).train()
    pixels = digits.test.images[:40] / 255
    together = mirrored_probabilities(model, torch.tensor(pixels, dtype=torch.float32).permute(0, 3, 1, 2))
    assert model.training and not model[2].running_mean.any()  # it predicts in evaluation mode
    weight, bias = model[1].weight.detach().numpy(), model[1].bias.detach().numpy()
    logits = [each.reshape(40, 64) @ weight.T + bias for each in (pixels, pixels[:, :, ::-1])]
    expected = sum(softmax(each / np.sqrt(1 + 1e-5), axis=1) for each in logits) / 2
    assert together.dtype == torch.float64 and not together.requires_grad
    assert np.allclose(together.numpy(), expected, atol=1e-6)
    with pytest.raises(InputError, match=r"\[b, c, h, w\] to mirror, but got .* shape \[40, 8, 8\]; give"):
        mirrored_probabilities(model, torch.zeros(40, 8, 8))


@pytest.mark.parametrize(
    "averaging", [{"averaging": "swa"}, {"averaging": "ema"}, {"averaging": "ema", "averaging_start": 0.0}]
)
def test_resumed_with_every_ingredient_equals_an_uninterrupted_run(digits, tmp_path, averaging):
    config = tiny(**{**EVERYTHING, **averaging}, method="crl-softmax")
    whole = finish(Run(config, digits, CPU))
    run = Run(config, digits, CPU)
    for kill in (2, 7, 10):  # steps, three an epoch: before, in and at the end of the averaged epochs
        while 3 * run.epoch + run.next_step < kill:
            run.step()
            if run.next_step == run.num_steps:
                run.finish_epoch()
        weights, state = run.snapshot()
        torch.save(state, tmp_path / "state.pt")
        run = Run(config, digits, CPU)
        run.load_state(weights, torch.load(tmp_path / "state.pt", weights_only=True))
    finish(run)
    for name, values in whole.model.state_dict().items():
        assert torch.equal(values, run.model.state_dict()[name]), name
    for one, other in zip(whole.state_dict()["optimizer"], run.state_dict()["optimizer"], strict=True):
        assert torch.equal(one, other)
    assert torch.equal(whole.history.correct, run.history.correct)
    assert whole.history.audit(epochs=4).ok


def test_a_folder_holds_the_averaged_network_and_mirrored_predictions(tmp_path):
    config = tiny(**EVERYTHING, holdout=0.1, batch_size=300)
    finished = train(config, tmp_path, device=CPU, checkpoint_epochs=1)
    folder = RunFolder(tmp_path)
    assert load_config(tmp_path) == config
    checkpoint, _ = load_latest(folder.checkpoint)
    assert checkpoint.state["average"]["count"] == 2
    assert torch.equal(checkpoint.weights["head.weight"], checkpoint.state["average"]["mean"][-1])
    assert isinstance(load_run(tmp_path).network.head, CosineHead)
    stored = load_predictions(folder.predictions("test"))
    assert stored.metadata["mirror"] == "true"
    assert np.array_equal(predict(tmp_path).probabilities, stored.probabilities)
    assert train(config, tmp_path, device=CPU).evaluations == finished.evaluations


def test_recipes_resolve_once():
    assert recipes.settings("paper") == RunConfig()
    config = recipes.settings("sure", dataset="cifar10", model="resnet18", holdout=0.1)
    assert (config.recipe, config.sam, config.head, config.mix_weight, config.weight) == (
        "sure", 0.05, "cosine", 0.5, 0.5,
    )  # fmt: skip
    assert RunConfig.from_dict(config.as_dict()) == config
    assert config.departures == {}
    assert config.run_name == "cifar10-resnet18-crl-softmax-stretched-weight0.5-sure-holdout0.1-seed0"
    changed = recipes.settings("best", mix="mixup", epochs=100, mirror=True)
    assert changed.departures == {"epochs": 100, "mix": "mixup", "mirror": True}
    assert changed.run_name == "digits-small-baseline-best-epochs100-mixmixup-mirror-seed0"
    assert RunConfig(epochs=7, sam=0.05).run_name == "digits-small-crl-softmax-sam0.05-seed0"
    with pytest.raises(ValueError, match="expected a recipe among paper, fmfp, sure, best, but got 'bst'"):
        recipes.settings("bst")
    with pytest.raises(ValueError, match="expected run settings among .*, but got mixing"):
        recipes.settings("best", mixing="both")


def test_the_learning_rate_of_averaging_follows_that_of_the_recipe(tmp_path, command, capsys):
    absolute = {("fmfp", "cifar10"): 0.05, ("best", "digits"): 0.02, ("best", "cifar100"): 0.02}
    for (name, dataset), rate in absolute.items():
        assert recipes.settings(name, dataset=dataset).averaging_lr == rate  # as before, to the bit
        lower = recipes.settings(name, dataset=dataset, lr=0.001)
        assert lower.averaging_lr == pytest.approx(rate / 100, rel=1e-12)
        assert lower.departures == {"lr": 0.001}
    assert recipes.settings("best", averaging_lr=0.07, lr=0.01).departures == {"lr": 0.01, "averaging_lr": 0.07}
    flags = ["--epochs", 1, "--batch-size", 300, "--model", "mlp", "--device", "cpu"]
    flags += ["--recipe", "fmfp", "--lr", 0.01]
    command("train", *flags, "--out", tmp_path / "run")
    assert load_config(tmp_path / "run").averaging_lr == 0.005
    assert "warning: the learning rate" not in " ".join(capsys.readouterr().out.split())
    command("train", *flags, "--averaging-lr", 0.05, "--out", tmp_path / "rising")
    assert "warning: the learning rate rises from 0.01 to 0.05" in " ".join(capsys.readouterr().out.split())


def test_a_recipe_leaves_out_what_texts_cannot_have():
    texts = recipes.settings("best", dataset="reviews.csv")
    assert (texts.mix, texts.soft_labels, texts.head) == ("none", 0, "cosine")
    assert (texts.epochs, texts.optimizer, texts.lr, texts.averaging_lr) == (20, "adamw", 0.003, 0.0006)
    assert texts.departures == {} and texts.run_name == "reviews-bag-of-embeddings-baseline-adamw-best-seed0"
    assert texts.left_out == {
        "epochs": "texts are trained for 20",
        "mix": "texts cannot be mixed",
        "soft_labels": "on texts they made the ranking worse",
    }
    longer = recipes.settings("best", dataset="reviews.csv", epochs=40)
    assert longer.departures == {"epochs": 40} and list(longer.left_out) == ["mix", "soft_labels"]
    assert recipes.settings("sure", dataset="reviews.csv").method == "crl-softmax-stretched"
    assert recipes.settings("paper", dataset="reviews.csv") == RunConfig(
        dataset="reviews.csv", model="bag-of-embeddings", method="baseline", optimizer="adamw", lr=0.003, epochs=20
    )
    own = recipes.settings("sure", model="own:network")
    assert own.head == "linear" and own.departures == {}
    assert own.left_out == {"head": "your own network has a head"}
    assert recipes.settings("best").left_out == {} == RunConfig().left_out


def test_every_recipe_says_what_it_is():
    for name, recipe in recipes.RECIPES.items():
        config = recipes.settings(name)
        assert recipe.passes == (2 if config.sam else 1) * (2 if config.mix != "none" else 1)
        assert recipe.source and "AURC" in recipe.expected


def test_flags_override_the_recipe(tmp_path, command, capsys):
    flags = ["--epochs", 1, "--batch-size", 300, "--model", "mlp", "--device", "cpu"]
    command("train", "--recipe", "fmfp", *flags, "--averaging-start", 0, "--out", tmp_path / "run")
    config = load_config(tmp_path / "run")
    changes = {"epochs": 1, "batch_size": 300, "model": "mlp", "averaging_start": 0.0}
    assert config == recipes.settings("fmfp", **changes)
    printed = " ".join(capsys.readouterr().out.split())
    assert "departures from the recipe fmfp: --epochs 1, --batch-size 300, --averaging-start 0.0" in printed
    command("train", "--config", tmp_path / "run" / "config.yaml", "--device", "cpu", "--out", tmp_path / "again")
    assert load_config(tmp_path / "again") == config
    command(
        "train", "--config", tmp_path / "run" / "config.yaml", "--recipe", "best", "--out", tmp_path / "x", code=2
    )
    assert "expected --recipe fmfp, whose settings" in capsys.readouterr().err
    command("train", "--recipe", "bst", *flags, "--out", tmp_path / "no", code=2)
    assert "expected a recipe among paper, fmfp, sure, best, but got 'bst'" in capsys.readouterr().err

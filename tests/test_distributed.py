"""Several processes on one machine, over gloo."""

import copy
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from confrank import (
    CorrectnessHistory,
    CorrectnessRanking,
    CorrectnessRankingLoss,
    IndexedDataset,
    SharedHistory,
    SharedRing,
)
from confrank.config import RunConfig
from confrank.data import load
from confrank.runs.checkpoint import load_latest
from confrank.training import Processes
from confrank.training import train as train_run
from confrank.training.shared_norm import SharedNorms

NUM_PROCESSES, NUM_SAMPLES, NUM_EPOCHS = 3, 50, 4
# 101 samples in batches of 20: parts of 7, 7 and 6, and a last batch of one sample.
RUN = RunConfig(model="mlp", epochs=3, batch_size=20, seed=3)
CPU = torch.device("cpu")
PARTS = (0, 30), (30, 31), (31, NUM_SAMPLES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the processes have written their results."""
    folder = tmp_path_factory.mktemp("processes")
    multiprocessing.start_processes(process, (folder,), nprocs=NUM_PROCESSES, start_method="forkserver")
    return folder


@pytest.fixture
def written(folder):
    """What each process has written: its events, its history and its errors."""
    return [torch.load(folder / f"{rank}.pt") for rank in range(NUM_PROCESSES)]


def process(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=NUM_PROCESSES)
    torch.save((*train(rank, folder), unequal_beginnings(rank), copies(rank), shares(rank)), f"{folder}/{rank}.pt")
    torch.save((ring_gradients(rank), normalised(rank), declared_sizes(rank)), f"{folder}/parts{rank}.pt")
    train_run(RUN, folder / "run", data=run_data(), device=CPU, processes=Processes(rank, NUM_PROCESSES))
    distributed.barrier()  # gloo aborts a process whose peers leave while it still listens
    distributed.destroy_process_group()


def samples():
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(NUM_SAMPLES, 5, generator=generator)
    return TensorDataset(image, (image[:, 0] > 0).long() + (image[:, 1] > 0.5).long())


def train(rank, folder):
    """Four epochs with a restart in the middle, every event written down beside the history."""
    torch.manual_seed(0)
    data = samples()
    model = DistributedDataParallel(torch.nn.Linear(5, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    sampler = DistributedSampler(data, seed=1)
    criterion = CorrectnessRankingLoss(CorrectnessHistory(NUM_SAMPLES))
    shared, events = SharedHistory(criterion.history), []
    for epoch in range(NUM_EPOCHS):
        if epoch == 2:
            distributed.barrier()
            criterion = CorrectnessRankingLoss(CorrectnessHistory(NUM_SAMPLES))
            shared = SharedHistory(criterion.history)
            criterion.load_state_dict(torch.load(f"{folder}/checkpoint.pt"))
        sampler.set_epoch(epoch)
        for image, label, index in DataLoader(IndexedDataset(data), batch_size=4, sampler=sampler):
            optimizer.zero_grad()
            rate, logits = criterion.history.rate(index), model(image)
            correct = logits.argmax(dim=1) == label
            criterion(logits, label, index).backward()
            optimizer.step()
            events.append(torch.stack((torch.full_like(index, epoch), index, correct, label, rate), dim=1).double())
        shared.add_up()
        if rank == 0:
            torch.save(criterion.state_dict(), f"{folder}/checkpoint.pt")
    return torch.cat(events), criterion.history.state_dict()


def unequal_beginnings(rank):
    """Restored in one process alone; made for a shard instead of the whole set."""
    restored = CorrectnessHistory(4)
    if rank == 0:
        restored.update(torch.tensor([0, 1]), torch.tensor([True, False]))
    late = CorrectnessHistory(4)  # counted before it was shared, as often in each process
    late.update(torch.tensor([rank, (rank + 1) % 4]), torch.tensor([True, True]))
    messages = []
    finer = CorrectnessHistory(4, resolution=1 + rank)
    for history in (restored, CorrectnessHistory(4 + rank), late, finer):
        try:
            SharedHistory(history).add_up()
        except ValueError as error:
            messages.append(str(error))
    return messages


def copies(rank):
    """Shared twice, saved whole, copied, and a state loaded into the copy."""
    history = CorrectnessHistory(NUM_PROCESSES)
    one, other = SharedHistory(history), SharedHistory(history)
    history.update(torch.tensor([rank]), torch.tensor([True]))
    one.add_up()
    other.add_up()
    copy.deepcopy(history).load_state_dict(history.state_dict())
    history.update(torch.tensor([rank]), torch.tensor([False]))
    copy.deepcopy(history).load_state_dict(history.state_dict())
    again = pickle.loads(pickle.dumps(history))
    for each in (history, again):
        SharedHistory(each).add_up()
    return [(each.examined.tolist(), each.correct.tolist()) for each in (history, again)]


def shares(rank):
    """Labels of elements, of which each process sees another share of right ones; the data set grows in between."""
    history = CorrectnessHistory(1, resolution=1000)
    shared, ranking = SharedHistory(history), CorrectnessRanking(history)
    for num_samples in (1, 2):
        history.resize(num_samples)
        label = torch.tensor([[0, 0, 1]])
        label[0, : rank + 1] = 1
        ranking(torch.tensor([[[0.0] * 3, [1.0] * 3]]), label, torch.tensor([num_samples - 1]))
        shared.add_up()
    return history.examined.tolist(), history.correct.tolist()


def ring_batch(ignored):
    """A batch for a linear model: images, labels of which some are ignored, and a history."""
    image, label = samples().tensors
    label = torch.where(torch.arange(NUM_SAMPLES) % 4 == 1, -100, label) if ignored else label
    history = CorrectnessHistory(NUM_SAMPLES)
    for modulus in (2, 3, 5):
        history.update(torch.arange(NUM_SAMPLES), torch.arange(NUM_SAMPLES) % modulus == 0)
    torch.manual_seed(1)
    return image, label, history, torch.nn.Linear(5, 3)


def ring_gradients(rank):
    """The gradient that DDP averages over unequal parts of a batch, and the value of the term."""
    results = []
    for ignored in (False, True):
        image, label, history, model = ring_batch(ignored)
        part = torch.arange(*PARTS[rank])
        sizes = [stop - start for start, stop in PARTS] if ignored else None
        ranking = CorrectnessRanking(history, ring=SharedRing(sizes=sizes))
        parallel = DistributedDataParallel(model)
        loss = ranking(parallel(image[part]), label[part], part)
        (loss * (NUM_PROCESSES * len(part) / NUM_SAMPLES)).backward()
        results.append((loss.detach(), model.weight.grad))
    return results


def declared_sizes(rank):
    """Batches that differ from the declared sizes by one sample, and sizes of too few processes."""
    messages = []
    for sizes in ([5] * NUM_PROCESSES, [3] * NUM_PROCESSES, [4]):
        try:
            SharedRing(sizes=sizes)(torch.zeros(2, 4))
        except ValueError as error:
            messages.append(str(error))
    return messages


def norm_layers():
    """Each with the input of a complete batch, and how much each output counts in the loss."""
    layers = torch.nn.BatchNorm2d(4), torch.nn.BatchNorm1d(6, affine=False, momentum=None)
    shapes = (NUM_SAMPLES, 4, 3, 2), (NUM_SAMPLES, 6)
    for layer, shape in zip(layers, shapes, strict=True):
        torch.manual_seed(2)
        layer = layer.double()
        for values in layer.parameters():
            torch.nn.init.normal_(values)
        yield layer, 3 + 2 * torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)


def normalised(rank):
    """Output, gradients and running statistics of batch norm in a part of the batch, after two passes."""
    start, stop = PARTS[rank]
    results = []
    for layer, image, weight in norm_layers():
        norms, part = SharedNorms(layer), image[start:stop].clone().requires_grad_()
        for _ in range(2):
            layer.zero_grad()
            part.grad = None
            with norms.over((stop - start) / NUM_SAMPLES):
                output = layer(part)
            (output.relu_() * weight[start:stop]).sum().backward()
        gradients = [values.grad for values in layer.parameters()]
        results.append((output.detach(), part.grad, gradients, layer.state_dict()))
    return results


def run_data():
    data = load("digits")
    return replace(data, train=data.train.select(np.arange(101)), test=data.test.select(np.arange(100)))


def test_a_ring_over_all_processes_gives_the_gradient_of_one(folder):
    for number, ignored in enumerate((False, True)):
        image, label, history, model = ring_batch(ignored)
        loss = CorrectnessRanking(history)(model(image), label, torch.arange(NUM_SAMPLES))
        loss.backward()
        assert loss > 0.1
        for rank in range(NUM_PROCESSES):
            value, gradient = torch.load(folder / f"parts{rank}.pt")[0][number]
            torch.testing.assert_close(value, loss.detach())
            torch.testing.assert_close(gradient, model.weight.grad, rtol=0, atol=1e-7)


def test_a_batch_of_another_size_than_declared_is_an_error(folder):
    for rank in range(NUM_PROCESSES):
        larger, smaller, fewer = torch.load(folder / f"parts{rank}.pt")[2]
        assert f"batches of 5 samples in process {rank}, as sizes says, but got 4; use drop_last=True" in larger
        assert "batches of 3 samples" in smaller and "or SharedRing() without sizes" in smaller
        assert fewer == "expected sizes for 3 processes, but got 1"


def test_batch_norm_over_all_processes_is_that_of_the_batch(folder):
    parts = [torch.load(folder / f"parts{rank}.pt")[1] for rank in range(NUM_PROCESSES)]
    for number, (layer, image, weight) in enumerate(norm_layers()):
        image.requires_grad_()
        for _ in range(2):
            layer.zero_grad()
            image.grad = None
            output = layer(image)
            (output.relu_() * weight).sum().backward()
        outputs, inputs, gradients, states = zip(*(part[number] for part in parts), strict=True)
        torch.testing.assert_close(torch.cat(outputs), output.detach())
        torch.testing.assert_close(torch.cat(inputs), image.grad)
        for mine, values in zip(zip(*gradients, strict=True), layer.parameters(), strict=True):
            torch.testing.assert_close(sum(mine), values.grad)
        for state in states:
            torch.testing.assert_close(dict(state), dict(layer.state_dict()))


def test_a_run_in_three_processes_equals_one_in_a_single_process(folder, tmp_path):
    train_run(RUN, tmp_path / "one", data=run_data(), device=CPU)
    one, three = (load_latest(path / "checkpoint")[0] for path in (tmp_path / "one", folder / "run"))
    for name, weights in one.weights.items():
        torch.testing.assert_close(three.weights[name], weights, rtol=0, atol=1e-6)
    for name, counts in one.state["criterion"].items():
        assert torch.equal(three.state["criterion"][name], counts)
    assert one.state["criterion"]["history.examined"].tolist() == [3] * 101
    for record, twin in zip(one.state["log"], three.state["log"], strict=True):
        assert record["acc"] == twin["acc"] and record["loss"] == pytest.approx(twin["loss"], abs=1e-6)
    metrics = [
        json.loads((path / "metrics.json").read_text())["metrics"] for path in (tmp_path / "one", folder / "run")
    ]
    assert metrics[0] == pytest.approx(metrics[1], abs=1e-6)
    assert json.loads((folder / "run/environment.json").read_text())["path"] == "eager float32 in 3 processes"


def test_a_history_is_shared_once_however_often_it_is_wrapped_or_copied(written):
    for *_, counts, _ in written:
        assert counts == [([2] * NUM_PROCESSES, [1] * NUM_PROCESSES)] * 2


def test_counts_and_rates_equal_those_of_all_events(written):
    parts, states, *_ = zip(*written, strict=True)
    events = torch.cat(parts).numpy()
    assert len(events) == NUM_EPOCHS * 51  # the sampler shows one sample twice, so that each process has 17
    epoch, index, correct = events[:, 0], events[:, 1].astype(int), events[:, 2]
    state = {name: values.numpy() for name, values in states[0].items()}
    for other in states[1:]:
        assert all(np.array_equal(other[name], values) for name, values in state.items())
    assert np.array_equal(state["examined"], np.bincount(index, minlength=NUM_SAMPLES))
    assert np.array_equal(state["correct"], np.bincount(index, correct, NUM_SAMPLES))
    assert np.array_equal(state["lowest_label"], samples().tensors[1])
    assert np.array_equal(state["highest_label"], samples().tensors[1])
    assert 0 < correct.mean() < 1
    # The rate that a sample came with is that of all events of the epochs before, whoever examined it then.
    once = [row for row in range(len(events)) if (index[epoch == epoch[row]] == index[row]).sum() == 1]
    assert len(once) > NUM_EPOCHS * 45
    for row in once:
        before = correct[(index == index[row]) & (epoch < epoch[row])]
        assert events[row, 4] == np.float32(before.mean() if len(before) else 0)


def test_shares_are_added_up_exactly(written):
    for *_, counts in written:
        assert counts == ([3, 3], [667 + 1000 + 1000] * 2)


def test_unequal_beginnings_are_an_error_in_every_process(written):
    for _, _, (restored, shard, late, finer), *_ in written:
        assert "one resolution in each process, but got from 1 to 3; create all histories" in finer
        assert "but the counts of 4 samples differ" in late
        assert "but the counts of 2 samples differ; load the checkpoint in every process" in restored
        assert "but got sizes from 4 to 6; create it with len(train_set)" in shard


def test_a_single_process_needs_nothing():
    history = CorrectnessHistory(2)
    shared = SharedHistory(history)
    history.update(torch.tensor([0]), torch.tensor([True]))
    shared.add_up()
    assert history.examined.tolist() == [1, 0]
    assert torch.equal(history.agreed, history.counts())  # where several processes go on from

"""Several processes on one machine, over gloo."""

import copy
import doctest
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from blocks import MATCHING
from programs import program
from safetensors.torch import load_file
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
    evaluate,
)
from confrank.loss import ranking_loss, shared_ranking_loss

NUM_PROCESSES, NUM_SAMPLES, NUM_EPOCHS = 3, 50, 4
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
    torch.save((ring_gradients(rank), declared_sizes(rank)), f"{folder}/parts{rank}.pt")
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


@pytest.mark.parametrize("sizes", [(1, 1), (3, 3), (5, 2, 4), (1, 0, 2), (0, 1)])
@pytest.mark.parametrize("ignored", [False, True])
def test_a_ring_over_processes_is_the_ring_of_the_batch(sizes, ignored):
    generator = torch.Generator().manual_seed(sum(sizes))
    rate = torch.randint(0, 4, (sum(sizes),), generator=generator) / 3
    confidence = torch.rand(sum(sizes), generator=generator, dtype=torch.float64, requires_grad=True)
    keep = torch.rand(sum(sizes), generator=generator) < 0.6 if ignored else None
    expected = ranking_loss(confidence, rate, keep)
    (gradient,) = torch.autograd.grad(expected, confidence)
    bounds = np.cumsum([0, *sizes])
    for rank, size in enumerate(sizes):
        part = slice(bounds[rank], bounds[rank + 1])
        mine = confidence[part].detach().clone().requires_grad_()

        def ring(values, part=part):
            rows = [confidence.detach(), rate.double(), *([] if keep is None else [keep.double()])]
            every = torch.stack(rows)
            assert torch.equal(values, every[:, part])
            return every, int(part.start)

        loss = shared_ranking_loss(mine, rate[part], None if keep is None else keep[part], ring)
        assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
        loss.backward()
        share = size / sum(sizes)
        torch.testing.assert_close(mine.grad * share, gradient[part])


def test_a_batch_of_another_size_than_declared_is_an_error(folder):
    for rank in range(NUM_PROCESSES):
        larger, smaller, fewer = torch.load(folder / f"parts{rank}.pt")[1]
        assert f"batches of 5 samples in process {rank}, as sizes says, but got 4; use drop_last=True" in larger
        assert "batches of 3 samples" in smaller and "or SharedRing() without sizes" in smaller
        assert fewer == "expected sizes for 3 processes, but got 1"


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


def run_example(name, *arguments, processes):
    """Start an example with torchrun, and compare what it prints with what it says."""
    path = Path(__file__).parents[1] / "examples" / name
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", processes, path, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    example = program(f"examples/{name}")
    expected = textwrap.dedent(example.__doc__.split("Expected output:\n\n")[1])
    assert doctest.OutputChecker().check_output(expected, done.stdout, MATCHING), done.stdout
    return example, done.stdout


@pytest.mark.slow
def test_the_example_with_ddp_equals_a_plain_loop_over_the_complete_batches(tmp_path):
    """The loop has neither processes nor a ring: each batch is what both processes take, one after the other."""
    example, printed = run_example("distributed_data_parallel.py", tmp_path / "digits.pt", processes=2)
    train_set, test_set = example.digits()
    model = example.make_model()
    optimizer = example.make_optimizer(model)
    history = CorrectnessHistory(len(train_set))
    criterion = CorrectnessRankingLoss(history)
    samplers = [DistributedSampler(train_set, 2, rank, seed=1) for rank in (0, 1)]
    for epoch in range(example.EPOCHS):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        shares = [torch.tensor([*sampler]).split(example.BATCH_SIZE) for sampler in samplers]
        for parts in zip(*shares, strict=True):
            index = torch.cat(parts)
            image, label = train_set[index]
            optimizer.zero_grad()
            criterion(model(image), label, index).backward()
            optimizer.step()
    saved = torch.load(tmp_path / "digits.pt")
    assert history.examined.tolist() == [example.EPOCHS] * 1200 and 0.5 < history.rate(torch.arange(1200)).mean() < 1
    for name, counts in criterion.state_dict().items():
        assert torch.equal(saved["criterion"][name], counts), name
    for name, weights in model.state_dict().items():
        torch.testing.assert_close(saved["model"][name], weights, rtol=0, atol=1e-5)
    image, label = test_set.tensors
    with torch.no_grad():
        metrics = evaluate(logits=model(image), label=label).metrics
    assert f"accuracy {metrics['acc']:.3f}, AURC {metrics['aurc']:.3f}, ECE {metrics['ece']:.3f}" in printed


@pytest.mark.slow
def test_the_example_with_transformers_equals_one_process(tmp_path):
    runs = []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        example, printed = run_example("transformers_trainer.py", folder, processes=processes)
        (checkpoint,) = folder.glob("checkpoint-*")
        model = example.make_model().eval()
        model.load_state_dict(load_file(folder / "model.safetensors"))
        words = torch.tensor([row["input_ids"] for row in example.reviews(301, seed=1)])
        with torch.no_grad():
            logits = model(words).logits
        runs.append((load_file(checkpoint / "correctness_history.safetensors"), logits, printed.splitlines()[-2:]))
    (counts, logits, summary), (others, other_logits, other_summary) = runs
    assert counts["examined"].tolist() == [example.EPOCHS] * 800
    assert 0.5 < counts["correct"].sum() / counts["examined"].sum() < 1
    assert all(torch.equal(others[name], values) for name, values in counts.items())
    torch.testing.assert_close(other_logits, logits, rtol=0, atol=1e-4)
    assert summary == other_summary

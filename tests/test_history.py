from collections import UserDict

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from confrank import CorrectnessHistory, CorrectnessRankingLoss, IndexedDataset
from confrank.training import Sharpness


def labelled_set(num_samples=37, num_classes=3):
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(num_samples, 5, generator=generator)
    return TensorDataset(data, torch.randint(0, num_classes, (num_samples,), generator=generator))


def test_events_of_a_shuffled_loader_equal_a_hand_count():
    dataset, model = labelled_set(), torch.nn.Linear(5, 3)
    history = CorrectnessHistory(len(dataset))
    criterion = CorrectnessRankingLoss(history)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loader = DataLoader(
        IndexedDataset(dataset), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(1)
    )
    correct, examined = [0] * len(dataset), [0] * len(dataset)
    for _ in range(3):
        for data, label, index in loader:
            logits = model(data)
            for row in range(len(data)):
                examined[index[row]] += 1
                correct[index[row]] += int(logits[row].tolist().index(max(logits[row].tolist())) == label[row])
            optimizer.zero_grad()
            criterion(logits, label, index).backward()
            optimizer.step()
    assert history.examined.tolist() == examined == [3] * len(dataset)
    assert history.correct.tolist() == correct
    assert 0 < sum(correct) < 3 * len(dataset)
    rates = [right / seen for right, seen in zip(correct, examined, strict=True)]
    assert history.rate(torch.arange(len(dataset))).tolist() == pytest.approx(rates)
    assert history.audit(epochs=3).ok


def test_stretched_rates_are_those_of_the_published_code():
    correct = torch.tensor([3, 9, 4, 10], dtype=torch.int32)
    history = CorrectnessHistory(4)
    history.correct.copy_(correct)
    history.examined.fill_(10)
    expected = (correct - correct.min()) / (10 - correct.min())
    assert history.rate(torch.arange(4), stretched=True).tolist() == pytest.approx(expected.tolist())
    assert history.rate(torch.tensor([2, 0]), stretched=True).tolist() == pytest.approx([1 / 7, 0])
    assert history.rate(torch.arange(4)).tolist() == pytest.approx([0.3, 0.9, 0.4, 1.0])


def test_stretched_rates_without_a_wrong_event():
    history = CorrectnessHistory(3)
    assert history.rate(torch.arange(3), stretched=True).tolist() == [0, 0, 0]
    history.correct.copy_(torch.tensor([2, 3, 3]))
    history.examined.copy_(torch.tensor([2, 3, 4]))  # in the middle of an epoch
    assert history.rate(torch.arange(3), stretched=True).tolist() == [1, 1, 0.5]
    history.correct.copy_(torch.tensor([7, 10, 0]))
    history.examined.copy_(torch.tensor([10, 10, 0]))  # the last is never shown
    assert history.rate(torch.arange(3), stretched=True).tolist() == [0, 1, 0]


def test_duplicates_each_count():
    history = CorrectnessHistory(3)
    history.update(torch.tensor([1, 1, 1, 2]), torch.tensor([True, False, True, False]))
    assert history.examined.tolist() == [0, 3, 1]
    assert history.correct.tolist() == [0, 2, 0]


def test_state_survives_state_dict():
    history = CorrectnessHistory(4)
    history.update(torch.tensor([0, 3]), torch.tensor([True, False]), torch.tensor([5, 6]))
    twin = CorrectnessHistory(4)
    twin.load_state_dict(history.state_dict())
    assert twin.rate(torch.arange(4)).tolist() == [1, 0, 0, 0]
    twin.update(torch.tensor([0]), torch.tensor([True]), torch.tensor([4]))
    assert twin.audit().conflicting_labels == [0]
    assert history.audit().conflicting_labels == []


def test_nothing_is_recorded_in_evaluation_mode():
    history = CorrectnessHistory(2).eval()
    history.update(torch.tensor([0]), torch.tensor([True]))
    assert history.examined.tolist() == [0, 0]


def test_audit_finds_batch_positions_fed_as_indices():
    dataset = labelled_set()
    history = CorrectnessHistory(len(dataset))
    for _ in range(2):
        for data, label in DataLoader(dataset, batch_size=8, shuffle=True):
            history.update(torch.arange(len(data)), torch.ones(len(data), dtype=torch.bool), label)
    audit = history.audit(epochs=2)
    assert not audit.ok
    assert audit.conflicting_labels
    assert audit.never_seen == list(range(8, len(dataset)))
    assert audit.too_often == list(range(8))
    assert "different labels" in str(audit)
    assert "drop_last" in str(audit)


def test_audit_takes_the_most_common_count_without_epochs():
    history = CorrectnessHistory(5)
    for _ in range(2):
        history.update(torch.arange(5), torch.ones(5, dtype=torch.bool))
    history.update(torch.tensor([4]), torch.tensor([True]))
    assert history.audit().too_often == [4]
    history.update(torch.arange(4), torch.ones(4, dtype=torch.bool))
    assert history.audit().ok and history.audit(epochs=3).ok
    assert str(history.audit(epochs=3)).startswith("ok: 5 samples")


def test_audit_within_the_first_epoch_reports_only_what_is_missing():
    history = CorrectnessHistory(5)
    assert history.audit().never_seen == list(range(5)) and not history.audit().too_often
    history.update(torch.tensor([1, 3]), torch.tensor([True, False]))
    audit = history.audit()
    assert (audit.epochs, audit.never_seen, audit.too_often) == (1, [0, 2, 4], [])
    assert str(audit).startswith("3 of 5 samples were never examined")
    history.update(torch.tensor([0, 2, 4]), torch.tensor([True, True, True]))
    assert str(history.audit()) == "ok: 5 samples, each examined at most once, one label each"


def test_audit_finds_a_history_that_was_not_restored():
    first = CorrectnessHistory(6)
    for _ in range(5):
        first.update(torch.arange(6), torch.ones(6, dtype=torch.bool))
    assert first.audit(epochs=5).ok
    audit = first.audit(epochs=10)
    assert not audit.ok
    assert audit.too_seldom == list(range(6))
    assert "6 of 6 samples were examined fewer than 10 times: the history was not restored when" in str(audit)
    first.update(torch.tensor([0]), torch.tensor([True]))
    assert first.audit(epochs=6).too_seldom == [1, 2, 3, 4, 5]
    assert first.audit().too_seldom == []
    assert CorrectnessHistory(6).audit(epochs=3).too_seldom == []


def test_wrong_input():
    history = CorrectnessHistory(5)
    right = torch.tensor([True])
    with pytest.raises(ValueError, match=r"within 0..4 for a history of 5 samples, but got -1;"):
        history.update(torch.tensor([-1]), right)
    with pytest.raises(ValueError, match=r"but got 5; pass positions .* create the history with the length of that"):
        history.rate(torch.tensor([5]))
    with pytest.raises(ValueError, match=r"index on cpu, where the history is, but got it on meta; use crit"):
        history.rate(torch.tensor([0], device="meta"))
    with pytest.raises(ValueError, match=r"correct of shape \(2,\) like index, but got \(1,\)"):
        history.update(torch.tensor([0, 1]), right)
    for other, kind in (([True], "builtins.list"), (None, "builtins.NoneType")):
        with pytest.raises(ValueError, match=rf"correct to be a torch tensor, but got {kind}"):
            history.update(torch.tensor([0]), other)
    with pytest.raises(ValueError, match=r"booleans, or 0 and 1, but got 0.25"):
        history.update(torch.tensor([0, 1]), torch.tensor([1.0, 0.25]))
    for wrong in (0, True, 3.0, np.float64(3)):
        with pytest.raises(ValueError, match="positive integer, but got"):
            CorrectnessHistory(wrong)
    assert history.examined.sum() == 0
    assert CorrectnessHistory(np.int64(5)).examined.shape == (5,)


def test_indexed_dataset_needs_positions():
    for row in ({"image": 1}, UserDict(image=1)):  # as tokenizers give them
        assert IndexedDataset([row])[0] == {"image": 1, "index": 0}
    with pytest.raises(ValueError, match="map-style data set"):
        IndexedDataset(iter([1, 2]))
    with pytest.raises(ValueError, match=r"but got Stream; a stream .* can yield \(image, label, index\) itself"):
        IndexedDataset(Stream())
    with pytest.raises(ValueError, match="without the key 'index', .* but got 'image', 'index'; rename it, or omit"):
        IndexedDataset([{"image": 1, "index": 7}])[0]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(1, 2)])

    def __len__(self):
        return 1


class Whole(TensorDataset):
    """A data set that reads batches as a whole, and nothing else."""

    def __getitem__(self, index):
        raise AssertionError

    def __getitems__(self, indices):
        return list(zip(*(values[indices] for values in self.tensors), strict=True))


@pytest.mark.parametrize("kind", [TensorDataset, Whole])
def test_batches_are_read_as_a_whole_if_the_data_set_can(kind):
    dataset = labelled_set()
    loader = DataLoader(IndexedDataset(kind(*dataset.tensors)), batch_size=8, shuffle=True)
    seen = []
    for data, label, index in loader:
        assert torch.equal(data, dataset.tensors[0][index]) and torch.equal(label, dataset.tensors[1][index])
        seen += index.tolist()
    assert sorted(seen) == [*range(len(dataset))]


def test_indices_from_the_end_are_positions():
    data = IndexedDataset([("a", 3), ("b", 1)])
    assert data[-1] == data[np.int64(1)] == ("b", 1, 1)
    for index in (-3, 2):
        with pytest.raises(IndexError, match=f"within 0..1, but got {index}"):
            data[index]


def test_labels_of_any_integer_type_and_no_other():
    history = CorrectnessHistory(4)
    history.update(torch.tensor([0, 1]), torch.tensor([True, True]), torch.tensor([3, 2], dtype=torch.int32))
    assert history.lowest_label[:2].tolist() == [3, 2]
    with pytest.raises(ValueError, match=r"expected label to hold class numbers, but got torch.float32"):
        history.update(torch.tensor([0]), torch.tensor([True]), torch.tensor([1.0]))
    assert history.examined.tolist() == [1, 1, 0, 0]


def test_rates_do_not_take_the_default_type():
    history = CorrectnessHistory(1)
    for correct in (True, False, False):
        history.update(torch.tensor([0]), torch.tensor([correct]))
    torch.set_default_dtype(torch.bfloat16)
    try:
        rate = history.rate(torch.tensor([0]))
    finally:
        torch.set_default_dtype(torch.float32)
    assert rate.dtype == torch.float32
    assert rate.item() == pytest.approx(1 / 3, abs=1e-7)


def test_shares_are_counted_in_units():
    history = CorrectnessHistory(3, resolution=1000)
    history.update(torch.tensor([0, 1, 2]), torch.tensor([1 / 3, 0.0005, 1.0]))
    history.update(torch.tensor([0, 0]), torch.tensor([True, False]))
    assert history.correct.tolist() == [1333, 1, 1000]
    assert history.rate(torch.arange(3)).tolist() == pytest.approx([1.333 / 3, 0.001, 1.0])
    assert history.rate(torch.arange(3), stretched=True).tolist() == pytest.approx([1.332 / 2.999, 0.0, 1.0])
    assert "resolution=1000" in repr(history) and "resolution" not in repr(CorrectnessHistory(3))
    with pytest.raises(ValueError, match=r"shares within 0..1, but got 1.5"):
        history.update(torch.tensor([0]), torch.tensor([1.5]))
    with pytest.raises(ValueError, match="resolution to be a positive integer, but got 0.5"):
        CorrectnessHistory(3, resolution=0.5)
    with pytest.raises(
        ValueError, match="resolution to be at most 100,000, .*32 bits, but got 1,000,000,000; 1,000 is"
    ):
        CorrectnessHistory(3, resolution=10**9)


def test_the_finest_resolution_counts_20000_epochs_without_overflow():
    history = CorrectnessHistory(1, resolution=100_000)
    index = torch.zeros(20_000, dtype=torch.int64)
    history.update(index, torch.full((20_000,), 0.75))
    assert history.correct.tolist() == [20_000 * 75_000]
    assert history.rate(index[:1]).tolist() == [0.75]


def test_a_state_in_other_units_is_refused():
    shares, plain = CorrectnessHistory(3, resolution=1000), CorrectnessHistory(3)
    assert [*plain.state_dict()] == ["examined", "correct", "lowest_label", "highest_label"]
    shares.update(torch.tensor([0]), torch.tensor([0.25]))
    with pytest.raises(ValueError, match=r"resolution 1, but got 1,000; create it with .*\(3, resolution=1000\)"):
        plain.load_state_dict(shares.state_dict())
    with pytest.raises(ValueError, match=r"resolution 1,000, but got 1;"):
        shares.load_state_dict(plain.state_dict())
    again = CorrectnessHistory(3, resolution=1000)
    again.load_state_dict(shares.state_dict())
    assert again.correct.tolist() == [250, 0, 0]


def test_a_state_of_another_size_is_refused():
    small = CorrectnessHistory(20)
    with pytest.raises(
        ValueError,
        match=r"history of 30 samples, but got 20; create it with CorrectnessHistory\(20\), load .* resize\(30\)",
    ):
        CorrectnessRankingLoss(CorrectnessHistory(30)).load_state_dict(CorrectnessRankingLoss(small).state_dict())
    with pytest.raises(ValueError, match="of 10 samples, but got 20; create it with the length of the data set"):
        CorrectnessHistory(10).load_state_dict(small.state_dict())


def test_a_history_grows_with_its_data_set():
    history = CorrectnessHistory(2)
    history.update(torch.tensor([0, 1]), torch.tensor([True, False]), torch.tensor([4, 5]))
    history.agree()
    history.resize(2)
    history.resize(np.int64(4))
    assert history.agreed.tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]
    history.update(torch.tensor([0, 3]), torch.tensor([False, True]), torch.tensor([4, 7]))
    assert history.rate(torch.arange(4)).tolist() == [0.5, 0.0, 0.0, 1.0]
    assert history.audit().never_seen == [2] and not history.audit().conflicting_labels
    fresh = CorrectnessHistory(4)
    fresh.load_state_dict(history.state_dict())
    assert torch.equal(fresh.counts(), history.counts())
    with pytest.raises(ValueError, match="at least the 4 samples that the history has, but got 3; create a new"):
        history.resize(3)


def test_nothing_goes_on_with_the_counters_of_a_smaller_history():
    """SAM restores the counters after its second pass; with old ones, both passes would count."""
    history, weight = CorrectnessHistory(2), torch.nn.Parameter(torch.ones(1))
    sharpness = Sharpness([weight], rho=0.05, buffers=history.buffers())
    sharpness.remember()
    before = history.state_dict()
    history.resize(3)
    assert before["examined"].shape == (2,)  # what was saved stays as it is
    with pytest.raises(RuntimeError, match="size of tensor"):
        sharpness.remember()
    Sharpness([weight], rho=0.05, buffers=history.buffers()).remember()


def test_no_samples_and_the_edges_of_the_index():
    history = CorrectnessHistory(3)
    none = torch.empty(0, dtype=torch.int64)
    history.update(none, none.bool())
    assert history.rate(none).tolist() == []
    history.update(torch.tensor([0, 2]), torch.tensor([True, True]))
    assert history.examined.tolist() == [1, 0, 1]


def test_the_audit_names_the_sampler_that_repeats_samples():
    history = CorrectnessHistory(3)
    history.update(torch.tensor([0, 1, 2, 0]), torch.ones(4, dtype=torch.bool))
    assert "examined more than once: a DistributedSampler, which repeats a few" in str(history.audit(1))


def test_the_audit_names_what_else_explains_the_counts():
    history = CorrectnessHistory(6)
    for order in (torch.arange(4), torch.arange(2)):  # of 4 samples, stopped within the second epoch
        history.update(order, torch.ones(len(order), dtype=torch.bool))
    too_often, never_seen = str(history.audit()).splitlines()
    assert "an epoch that is not over, drop_last, or a data set that grew" in too_often
    assert "a history of more samples than you train on" in never_seen
    for epochs in range(2):
        assert "an earlier training with this history" in str(history.audit(epochs))

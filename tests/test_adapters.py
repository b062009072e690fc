"""confrank inside lightning and torchmetrics, with the real ones."""

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, EMAWeightAveraging, ModelCheckpoint
from torch import distributed, multiprocessing
from torch.utils.data import DataLoader, TensorDataset

from confrank import CorrectnessHistory, CorrectnessRanking, CorrectnessRankingLoss, IndexedDataset, evaluate
from confrank.adapters.lightning import RankingCallback
from confrank.adapters.torchmetrics import ConfidenceMetrics
from confrank.confidence import get

NUM_SAMPLES = 51  # no multiple of two processes
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
pytestmark = pytest.mark.filterwarnings("ignore")


def samples():
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(NUM_SAMPLES, 5, generator=generator)
    return TensorDataset(image, (image[:, 0] > 0).long() + (image[:, 1] > 0.5).long())


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.network = torch.nn.Linear(5, 3)
        self.criterion = CorrectnessRankingLoss(CorrectnessHistory(NUM_SAMPLES))
        self.metrics = ConfidenceMetrics()
        self.events = []

    def training_step(self, batch):
        image, label, index = batch
        logits = self.network(image)
        self.events.append(torch.stack((index, logits.argmax(dim=1) == label), dim=1))
        return self.criterion(logits, label, index)

    def validation_step(self, batch):
        image, label, index = batch
        self.metrics.update(self.network(image), label, index)

    def on_validation_epoch_end(self):
        self.log_dict(self.metrics.compute())
        self.metrics.reset()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


class Written(Callback):
    """Leaves the events and the history of each process in files."""

    def __init__(self, folder):
        self.folder = folder

    def on_train_end(self, trainer, pl_module):
        told = (torch.cat(pl_module.events), pl_module.criterion.history.state_dict())
        findings = trainer.callbacks[0].findings
        with torch.no_grad():
            image, label = samples().tensors
            alone = evaluate(logits=pl_module.network(image), label=label).metrics
        torch.save((*told, trainer.callback_metrics, findings, alone), f"{self.folder}/{trainer.global_rank}.pt")


def fit(folder, epochs, callbacks=(), *, kind=Module, ckpt_path=None, **options):
    loader = DataLoader(IndexedDataset(samples()), batch_size=8, shuffle=True)
    saves = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=3)
    callbacks = [*callbacks] or [RankingCallback(), Written(folder), saves]
    trainer = Trainer(max_epochs=epochs, callbacks=callbacks, **QUIET, **options)
    module = kind()
    trainer.fit(module, loader, DataLoader(IndexedDataset(samples()), batch_size=7), ckpt_path=ckpt_path)
    return module, trainer


def counted(events, num_samples=NUM_SAMPLES):
    index, correct = torch.cat(events).numpy().T
    return np.bincount(index, minlength=num_samples), np.bincount(index, correct, num_samples)


def test_lightning_counts_every_event_and_resumes_from_a_checkpoint(tmp_path):
    first, trainer = fit(tmp_path, 2)
    history = first.criterion.history
    assert np.array_equal(counted(first.events), (history.examined, history.correct))
    assert trainer.callbacks[0].findings == []
    again, _ = fit(tmp_path, 5, ckpt_path=tmp_path / "step=12.ckpt")  # of 14 steps, within the second epoch
    restored = torch.load(tmp_path / "step=12.ckpt", weights_only=False)["state_dict"]
    examined, correct = counted(again.events)
    history = again.criterion.history
    assert np.array_equal(restored["criterion.history.examined"] + examined, history.examined)
    assert np.array_equal(restored["criterion.history.correct"] + correct, history.correct)


def _fit_as(rank, folder):
    """As torchrun starts it."""
    distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"TORCHELASTIC_RUN_ID": "test", "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2}.items():
            patch.setenv(name, str(value))
        fit(folder, 3, devices=2, strategy="ddp")


def test_lightning_in_two_processes(tmp_path):
    multiprocessing.start_processes(_fit_as, (tmp_path,), nprocs=2, start_method="forkserver")
    events, states, told, findings, alone = zip(
        *(torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in (0, 1)), strict=True
    )
    examined, correct = counted(events)
    assert findings == ([], [])
    assert examined.sum() == 3 * (NUM_SAMPLES + 1)
    assert 0 < correct.sum() < examined.sum()
    for state in states:
        assert np.array_equal(state["examined"], examined)
        assert np.array_equal(state["correct"], correct)
    assert all(torch.equal(value, told[1][key]) for key, value in told[0].items())
    assert told[0]["acc"] > 0.5
    # The sampler repeats one of the 51 samples; the metrics are those of one process that sees each once.
    assert {key: told[0][key].item() for key in alone[0]} == pytest.approx(alone[0], abs=1e-6)


class Segmenter(LightningModule):
    """A class for each element of a signal, -100 for some."""

    def __init__(self, num_samples):
        super().__init__()
        self.network = torch.nn.Conv1d(1, 3, 1)
        self.ranking = CorrectnessRanking(CorrectnessHistory(num_samples, resolution=1000))
        self.metrics = ConfidenceMetrics()

    def training_step(self, batch):
        signal, label, index = batch
        logits = self.network(signal)
        base, ranking = torch.nn.functional.cross_entropy(logits, label), self.ranking(logits, label, index)
        self.log_dict({"base": base, "ranking": ranking})
        return base + ranking

    def validation_step(self, batch):
        self.metrics.update(self.network(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_lightning_takes_a_label_per_element(tmp_path):
    generator = torch.Generator().manual_seed(0)
    signal = torch.randn(13, 1, 7, generator=generator)
    label = (signal[:, 0] > 0).long() + (signal[:, 0] > 0.5).long()
    label[:, 0] = -100
    loader = DataLoader(IndexedDataset(TensorDataset(signal, label)), batch_size=4, shuffle=True)
    callback, module = RankingCallback(), Segmenter(13)
    options = {"enable_checkpointing": False, "num_sanity_val_steps": 0, **QUIET}
    trainer = Trainer(max_epochs=2, callbacks=[callback], **options)
    trainer.fit(module, loader, DataLoader(TensorDataset(signal, label), batch_size=13))
    assert module.ranking.history.examined.tolist() == [2] * 13
    assert callback.findings == []
    assert trainer.callback_metrics["base"] > 0 and "ranking" in trainer.callback_metrics
    module.metrics.reset()
    module.metrics.update(module.network(signal), label)
    logits = module.network(signal).detach().movedim(1, 2)[label >= 0]
    expected = evaluate(logits=logits, label=label[label >= 0]).metrics
    assert {key: value.item() for key, value in module.metrics.compute().items()} == pytest.approx(expected)


class Normalised(Module):
    """With a buffer before and after those of the history."""

    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.BatchNorm1d(5), self.network)
        self.register_buffer("last", torch.zeros(2))


@pytest.mark.parametrize("first", [True, False])
def test_lightning_averages_weights_and_no_counts(tmp_path, first):
    average = EMAWeightAveraging(use_buffers=False, update_every_n_steps=4)
    ranking, saved = RankingCallback(), ModelCheckpoint(tmp_path, filename="last")
    callbacks = [average, ranking, saved] if first else [ranking, average, saved]
    module, _ = fit(tmp_path, 2, callbacks, kind=Normalised)
    state = torch.load(tmp_path / "last.ckpt", weights_only=False)["state_dict"]
    for history in (module.criterion.history.state_dict(), {key[18:]: value for key, value in state.items()}):
        assert np.array_equal(counted(module.events), (history["examined"], history["correct"]))
        assert torch.equal(history["lowest_label"], samples().tensors[1])
    assert ranking.findings == []
    with pytest.raises(ValueError, match=r"but got use_buffers=True; use EMAWeightAveraging\(use_buffers=False\)"):
        fit(tmp_path, 2, [EMAWeightAveraging(), RankingCallback()], kind=Normalised, default_root_dir=tmp_path)


@pytest.mark.parametrize("size", [1, 2])
def test_batches_of_one_sample_are_reported(size):
    callback = RankingCallback()
    options = {"accumulate_grad_batches": 8, "enable_checkpointing": False, **QUIET}
    trainer = Trainer(max_epochs=1, callbacks=[callback], **options)
    trainer.fit(Module(), DataLoader(IndexedDataset(samples()), batch_size=size))
    assert [finding[:32] for finding in callback.findings] == ["every batch had one sample, so t"] * (size == 1)


def test_lightning_wants_a_history(tmp_path):
    with pytest.raises(ValueError, match="as an attribute of LightningModule, but got none; write self.criterion"):
        RankingCallback().setup(Trainer(logger=False), LightningModule(), "fit")


@pytest.mark.parametrize("confidence", ["max_probability", "margin", "negative_entropy"])
def test_metrics_of_batches_equal_those_of_all(confidence):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(200, 4, generator=generator).round(decimals=1)
    label = torch.randint(0, 4, (200,), generator=generator)
    metrics = ConfidenceMetrics(confidence)
    for start in range(0, 200, 33):
        metrics.update(logits[start : start + 33], label[start : start + 33])
    expected = evaluate(logits=logits, label=label, confidence=get(confidence)(logits.double())).metrics
    assert {key: value.item() for key, value in metrics.compute().items()} == expected
    metrics.reset()
    metrics.update(logits[:5], logits[:5].argmax(dim=1))
    assert metrics.compute()["acc"] == 1
    assert metrics.compute()["auroc"].isnan()


def test_metrics_of_nothing_and_of_a_diverged_network_are_undefined():
    metrics, nan, inf = ConfidenceMetrics(), float("nan"), float("inf")
    assert all(value.isnan() for value in metrics.compute().values())
    for logits in (torch.zeros(0, 3), torch.tensor([[nan, 1.0], [1.0, 2.0]]), torch.tensor([[inf, 1.0], [1.0, 2.0]])):
        metrics.reset()
        metrics.update(logits, torch.arange(len(logits)))
        assert all(value.isnan() for value in metrics.compute().values())


def test_a_repeated_index_counts_once_and_an_unknown_one_always():
    generator = torch.Generator().manual_seed(3)
    logits, label = torch.randn(30, 3, generator=generator), torch.randint(0, 3, (30,), generator=generator)
    expected = evaluate(logits=logits, label=label).metrics
    metrics = ConfidenceMetrics()
    metrics.update(logits[10:], label[10:], torch.arange(10, 30))
    metrics.update(torch.cat((logits[:10], logits[15:25])), torch.cat((label[:10], label[15:25])),
                   torch.cat((torch.arange(10), torch.arange(15, 25))))  # fmt: skip
    assert {key: value.item() for key, value in metrics.compute().items()} == pytest.approx(expected, abs=1e-12)
    metrics.reset()
    for _ in range(2):
        metrics.update(logits, label)
    twice = evaluate(logits=logits.repeat(2, 1), label=label.repeat(2)).metrics
    assert {key: value.item() for key, value in metrics.compute().items()} == pytest.approx(twice, abs=1e-12)
    with pytest.raises(ValueError, match=r"index of shape \(30,\), but got \(5,\)"):
        metrics.update(logits, label, torch.arange(5))


def test_the_elements_of_a_repeated_sample_count_once():
    generator = torch.Generator().manual_seed(4)
    logits, label = torch.randn(6, 3, 5, generator=generator), torch.randint(0, 3, (6, 5), generator=generator)
    label[1, 2:] = -100
    metrics = ConfidenceMetrics()
    metrics.update(logits[:4], label[:4], torch.arange(4))
    metrics.update(logits[[4, 5, 0, 1]], label[[4, 5, 0, 1]], torch.tensor([4, 5, 0, 1]))
    kept = label != -100
    expected = evaluate(logits=logits.movedim(1, -1)[kept], label=label[kept]).metrics
    assert {key: value.item() for key, value in metrics.compute().items()} == pytest.approx(expected, abs=1e-12)


def predictions_of_each_label(logits, label):
    """Probabilities and class of each label 0 or 1 that is not ignored, in plain Python."""
    pairs = zip(logits.flatten().tolist(), label.flatten().tolist(), strict=True)
    known = [(1 / (1 + np.exp(-z)), int(y)) for z, y in pairs if y != -100]
    return [[1 - p, p] for p, _ in known], [y for _, y in known]


@pytest.mark.parametrize("shape", [(20,), (20, 1), (20, 3), (20, 2, 4)])
def test_each_of_several_labels_is_one_prediction(shape):
    generator = torch.Generator().manual_seed(5)
    logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    label = torch.randint(0, 2, shape, generator=generator).float()
    label[2] = -100
    metrics = ConfidenceMetrics()
    metrics.update(logits[:15], label[:15], torch.arange(15))
    metrics.update(logits[10:], label[10:], torch.arange(10, 20))
    probabilities, classes = predictions_of_each_label(logits, label)
    expected = evaluate(probabilities=probabilities, label=classes).metrics
    assert {key: value.item() for key, value in metrics.compute().items()} == pytest.approx(expected, abs=1e-12)


def test_metrics_check_a_batch_when_it_comes():
    metrics, logits = ConfidenceMetrics(), torch.randn(4, 3)
    metrics.update(logits, torch.tensor([0, 1, 2, 1], dtype=torch.int32))
    for label, problem in (
        (torch.zeros(5, dtype=torch.int64), r"shape \(4,\) for logits \(4, 3\), but got \(5,\)"),
        (torch.full((4,), 3), r"within 0..2 as label, but got 3"),
        (torch.full((4, 3), 0.5), "labels 0 and 1 for logits of the same shape, but got 0.5"),
    ):
        with pytest.raises(ValueError, match=problem):
            metrics.update(logits, label)
    with pytest.raises(ValueError, match="got builtins.dict; pass its logits"):
        metrics.update({"logits": logits}, torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="expected index to be a torch tensor, but got builtins.list"):
        metrics.update(logits, torch.zeros(4, dtype=torch.int64), [0, 1, 2, 3])
    assert len(metrics.label) == len(metrics.index) == 1

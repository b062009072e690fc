"""confrank inside the Trainer of transformers, with the real one and a small BERT."""

from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import distributed, multiprocessing
from torch.utils.data import IterableDataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    EvalPrediction,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from confrank import CorrectnessHistory, CorrectnessRankingLoss, IndexedDataset, evaluate
from confrank.adapters.transformers import HISTORY_FILE, RankingTrainer, confidence_metrics
from confrank.files import write_atomically

NUM_SAMPLES = 21  # no multiple of the batch, nor of two processes
pytestmark = pytest.mark.filterwarnings("ignore")


def samples(num_samples=NUM_SAMPLES):
    words = np.random.default_rng(0).integers(3, 40, (num_samples, 6))
    return [{"input_ids": row.tolist(), "labels": int(row[0] > 20) + int(row[1] > 30)} for row in words]


def bert(kind=BertForSequenceClassification, *, dropout=0.1, **options):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    options = {"num_labels": 3, **options}
    return kind(BertConfig(vocab_size=40, max_position_embeddings=8, **sizes, **rates, **options))


def arguments(folder, **options):
    quiet = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "logging_strategy": "no"}
    usual = {"num_train_epochs": 2, "save_strategy": "no", "learning_rate": 0.01, "per_device_train_batch_size": 4}
    return TrainingArguments(str(folder), **quiet, **{**usual, **options})


def ranking_loss(num_samples=NUM_SAMPLES, **options):
    return CorrectnessRankingLoss(CorrectnessHistory(num_samples, options.pop("resolution", 1)), **options)


def ranking_trainer(folder, model=None, *, train_set=None, criterion=None, given=None, **options):
    train_set = samples() if train_set is None else train_set
    criterion = ranking_loss(len(train_set)) if criterion is None else criterion
    model = bert() if model is None else model
    given = {"train_dataset": train_set, "criterion": criterion, **(given or {})}
    return RankingTrainer(model, arguments(folder, **options), **given)


def same_weights(first, second):
    return all(map(torch.equal, first.model.parameters(), second.model.parameters()))


def test_without_weight_it_trains_as_a_plain_trainer_and_counts(tmp_path):
    plain = Trainer(bert(), arguments(tmp_path), train_dataset=samples())
    plain.train()
    ours = ranking_trainer(tmp_path, criterion=ranking_loss(weight=0.0))
    ours.train()
    assert same_weights(plain, ours)
    assert ours.criterion.history.examined.tolist() == [2] * NUM_SAMPLES
    assert ours.findings == []
    ranked = ranking_trainer(tmp_path)
    ranked.train()
    assert not same_weights(ranked, ours)


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        control.should_training_stop = state.global_step == 8


def test_it_resumes_from_a_checkpoint_within_an_epoch(tmp_path):
    whole = ranking_trainer(tmp_path / "whole")
    whole.train()
    stopped = ranking_trainer(tmp_path / "cut", save_strategy="steps", save_steps=4)
    stopped.add_callback(Stop())
    stopped.train()
    assert stopped.criterion.history.examined.sum() == NUM_SAMPLES + 8  # six steps, then two of four
    resumed = ranking_trainer(tmp_path / "cut", save_strategy="steps", save_steps=4)
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(whole.criterion.history.counts(), resumed.criterion.history.counts())
    assert same_weights(whole, resumed)
    (tmp_path / "cut" / "checkpoint-8" / HISTORY_FILE).unlink()
    with pytest.raises(ValueError, match=f"expected {HISTORY_FILE} in .*checkpoint-8, but it is missing"):
        resumed.train(resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-8"))


def test_a_checkpoint_is_removed_when_the_next_is_complete(tmp_path, monkeypatch):
    def full(path, content):
        if "checkpoint-8" in str(path):
            path.parent.mkdir()
            raise OSError(28, "No space left on device", str(path))
        write_atomically(path, content)

    monkeypatch.setattr("confrank.adapters.transformers.write_atomically", full)
    options = {"save_strategy": "steps", "save_steps": 4, "save_total_limit": 1}
    with pytest.raises(OSError, match="No space left"):
        ranking_trainer(tmp_path, **options).train()
    monkeypatch.undo()
    whole, resumed = ranking_trainer(tmp_path / "whole"), ranking_trainer(tmp_path, **options)
    whole.train()
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(whole.criterion.history.counts(), resumed.criterion.history.counts())
    (tmp_path / "checkpoint-12" / "trainer_state.json").unlink()  # as when it was stopped in between
    with pytest.raises(ValueError, match="expected trainer_state.json in .*checkpoint-12, but it is missing"):
        resumed.train(resume_from_checkpoint=True)


def test_accumulated_batches_train_as_one(tmp_path):
    whole, parts = (
        ranking_trainer(
            tmp_path, bert(dropout=0.0), train_set=samples(24), criterion=ranking_loss(24, weight=0.0), optim="sgd",
            per_device_train_batch_size=8 // number, gradient_accumulation_steps=number,
        )
        for number in (1, 4)
    )  # fmt: skip
    for trainer in (whole, parts):
        trainer.train()
        assert trainer.findings == []
    assert all(map(torch.allclose, whole.model.parameters(), parts.model.parameters()))
    assert torch.equal(whole.criterion.history.examined, parts.criterion.history.examined)


def test_batches_of_one_sample_are_reported(tmp_path):
    options = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4, "num_train_epochs": 1}
    trainer = ranking_trainer(tmp_path, **options)
    trainer.train()
    (finding,) = trainer.findings
    assert finding.startswith("every batch had one sample, so the ranking loss was 0: samples are paired within")


def _train_as(rank, folder):
    distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}.items():
            patch.setenv(name, str(value))
        trainer = ranking_trainer(folder, ddp_backend="gloo", save_strategy="steps", save_steps=4)
        trainer.add_callback(SaveAt())
        seen = []
        trainer.criterion.register_forward_hook(lambda module, given, loss: seen.append(events(*given)))
        trainer.train()
        told = (torch.cat(seen, dim=1), trainer.criterion.history.counts(), trainer.findings)
        torch.save(told, folder / f"{rank}.pt")
        trainer.compute_metrics = confidence_metrics
        metrics = {name: trainer.evaluate(rows) for name, rows in evaluation_sets().items()}
        torch.save((metrics, trainer.model.state_dict()), folder / f"metrics{rank}.pt")
    distributed.destroy_process_group()


def evaluation_sets():
    """Lists, a data set with indices, and one that is smaller than two batches."""
    return {"list": samples(101), "indexed": IndexedDataset(samples(101)), "small": samples(3)}


def events(logits, label, index):
    return torch.stack((index, (logits.argmax(dim=1) == label).long()))


def test_two_processes_share_one_history(tmp_path):
    multiprocessing.start_processes(_train_as, (tmp_path,), nprocs=2, start_method="forkserver")
    seen, counts, findings = zip(*(torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)), strict=True)
    index, correct = torch.cat(seen, dim=1).numpy()
    expected = np.stack((np.bincount(index, minlength=NUM_SAMPLES), np.bincount(index, correct, NUM_SAMPLES)))
    assert len(index) >= 2 * NUM_SAMPLES and set(index) == set(range(NUM_SAMPLES))
    assert all(np.array_equal(expected, each) for each in counts)
    assert findings == ([], [])
    for step in (2, 4):  # what both had counted by then
        then = load_file(tmp_path / f"checkpoint-{step}" / HISTORY_FILE)
        assert then["examined"].sum() == 2 * 4 * step
    for rank in (0, 1):
        metrics, state = torch.load(tmp_path / f"metrics{rank}.pt")
        model = bert().eval()
        model.load_state_dict(state)
        for name, rows in evaluation_sets().items():
            words, label = (torch.tensor([row[key] for row in rows]) for key in ("input_ids", "labels"))
            with torch.no_grad():
                expected = evaluate(logits=model(words).logits, label=label).metrics
            found = {key: metrics[name][f"eval_{key}"] for key in expected}
            assert found == pytest.approx(
                {k: np.nan if v is None else v for k, v in expected.items()}, abs=1e-5, nan_ok=True
            )


class SaveAt(TrainerCallback):
    """Asks for a checkpoint after the trainer's own callbacks."""

    def on_step_end(self, args, state, control, **others):
        control.should_save |= state.global_step == 2


def test_a_new_network_begins_a_new_history(tmp_path):
    criterion = ranking_loss()
    trainer = RankingTrainer(
        args=arguments(tmp_path), model_init=lambda: bert(), train_dataset=samples(), criterion=criterion
    )
    trainer.train()
    first = criterion.history.counts()
    trainer.train()
    assert torch.equal(first, criterion.history.counts())


def test_a_column_index_of_other_rows_is_left_out(tmp_path):
    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = bert()

        def forward(self, input_ids, labels=None):
            return self.network(input_ids=input_ids, labels=labels)

    rows = [{"input_ids": row["input_ids"], "index": 7} for row in samples()]
    criterion = ranking_loss()
    trainer = RankingTrainer(Plain(), arguments(tmp_path), criterion=criterion)
    assert trainer.predict(rows).predictions.shape == (NUM_SAMPLES, 3)
    trainer.train_dataset = samples()  # given late
    trainer.train()
    assert criterion.history.examined.tolist() == [2] * NUM_SAMPLES


def tokens(num_samples=NUM_SAMPLES):
    """Rows of words to be tagged, some of them and the first word of each row without a tag."""
    generator = np.random.default_rng(0)
    rows = [generator.integers(3, 40, 6) for _ in range(num_samples)]
    tags = [np.where(generator.random(6) < 0.2, -100, row // 14) for row in rows]
    return [
        {"input_ids": row.tolist(), "labels": [-100, *tag[1:].tolist()]} for row, tag in zip(rows, tags, strict=True)
    ]


def stacked(rows, without=""):
    return {key: torch.tensor([row[key] for row in rows]) for key in rows[0] if key != without}


def test_tokens_are_classified_in_a_trainer(tmp_path):
    given = {"train_dataset": tokens(), "data_collator": stacked}
    plain = Trainer(bert(BertForTokenClassification), arguments(tmp_path), **given)
    plain.train()
    trained = {}
    for weight in (0.0, 1.0):
        criterion, events = ranking_loss(resolution=1000, weight=weight), []
        criterion.register_forward_hook(lambda module, given, loss, events=events: events.append(given))
        trained[weight] = ranking_trainer(
            tmp_path / str(weight), bert(BertForTokenClassification), criterion=criterion, save_strategy="steps",
            save_steps=4, given={**given, "compute_metrics": confidence_metrics},
        )  # fmt: skip
        trained[weight].train()
        assert criterion.history.examined.tolist() == [2] * NUM_SAMPLES
        assert trained[weight].findings == []
        counted = [0] * NUM_SAMPLES
        for logits, label, index in events:
            for row in range(len(index)):
                kept = label[row] >= 0
                right = (logits[row].argmax(dim=0)[kept] == label[row][kept]).sum().item()
                counted[index[row]] += int(1000 * right / kept.sum().item() + 0.5)
        assert criterion.history.correct.tolist() == counted
    assert all(
        torch.allclose(one, other, atol=1e-5)
        for one, other in zip(plain.model.parameters(), trained[0.0].model.parameters(), strict=True)
    )
    assert not same_weights(trained[0.0], trained[1.0])
    resumed = trained[1.0]
    before = resumed.criterion.history.counts()
    resumed.train(resume_from_checkpoint=str(tmp_path / "1.0" / "checkpoint-8"))
    assert torch.equal(resumed.criterion.history.counts(), before)
    told = resumed.evaluate(tokens())
    logits, label, _ = resumed.predict(tokens())
    expected = evaluate(logits=logits[label >= 0], label=label[label >= 0]).metrics
    assert {key: told[f"eval_{key}"] for key in expected} == expected


def test_several_labels_in_a_trainer(tmp_path):
    rows = [{**row, "labels": [float(word > 20) for word in row["input_ids"][:3]]} for row in samples()]
    model = bert(problem_type="multi_label_classification")
    criterion = ranking_loss(resolution=1000)
    trainer = ranking_trainer(tmp_path, model, train_set=rows, criterion=criterion)
    trainer.train()
    assert criterion.history.examined.tolist() == [2] * NUM_SAMPLES
    assert 0 < criterion.history.correct.sum() < 2 * 1000 * NUM_SAMPLES
    assert trainer.findings == []
    trainer.compute_metrics = partial(confidence_metrics, confidence="margin")
    rows[0]["labels"][1] = -100.0
    measured = trainer.evaluate(rows)
    logits, label, _ = trainer.predict(rows)
    probability = 1 / (1 + np.exp(-logits[label >= 0].astype(np.float64)))
    expected = evaluate(
        probabilities=np.stack((1 - probability, probability), axis=1),
        label=label[label >= 0].astype(int),
        confidence=abs(2 * probability - 1),
    ).metrics
    assert len(probability) == 3 * NUM_SAMPLES - 1
    assert {key: measured[f"eval_{key}"] for key in expected} == pytest.approx(expected, abs=1e-6)


def test_one_logit_in_a_trainer(tmp_path):
    rows = [{**row, "labels": float(row["input_ids"][0] > 20)} for row in samples()]
    trainer = ranking_trainer(tmp_path, bert(num_labels=1), train_set=rows)
    trainer.compute_metrics = confidence_metrics
    trainer.train()
    measured = trainer.evaluate(rows)
    logits, label, _ = trainer.predict(rows)
    assert logits.shape == (NUM_SAMPLES, 1)
    assert measured["eval_acc"] == ((logits[:, 0] > 0) == label).mean()
    correct, confidence = (logits[:, 0] > 0) == label, 1 / (1 + np.exp(-abs(logits[:, 0].astype(np.float64))))
    assert measured["eval_ece"] == pytest.approx(evaluate(confidence=confidence, correct=correct).metrics["ece"])


def test_metrics_are_those_of_evaluate(tmp_path):
    trainer = ranking_trainer(tmp_path)
    trainer.compute_metrics = confidence_metrics
    told = trainer.evaluate(samples(15))
    logits, label, _ = trainer.predict(samples(15))
    expected = evaluate(logits=logits, label=label).metrics
    assert {key: told[f"eval_{key}"] for key in expected} == expected
    for value in (np.nan, np.inf):
        lost = confidence_metrics(EvalPrediction(np.full((2, 2), value), np.array([0, 1])))
        assert lost.keys() == expected.keys() and np.isnan([*lost.values()]).all()
    alone = confidence_metrics(EvalPrediction((np.array([[2.0, 0.0]]), "hidden states"), np.array([0])))
    assert alone["acc"] == 1 and np.isnan(alone["auroc"])


class Stream(IterableDataset):
    """The samples in an order of their own, each with its position in the list, or without."""

    def __init__(self, *, indexed=True):
        self.rows = [{**row, "index": number} if indexed else row for number, row in enumerate(samples())]

    def __iter__(self):
        return iter(self.rows[::-1])


def test_a_stream_says_its_own_positions(tmp_path):
    steps = 2 * 6  # 21 samples in batches of 4, twice
    criterion = ranking_loss()
    trainer = ranking_trainer(tmp_path, train_set=Stream(), criterion=criterion, max_steps=steps)
    trainer.train()
    assert criterion.history.audit(epochs=2).ok and trainer.findings == []
    label = [row["labels"] for row in samples()]
    assert criterion.history.lowest_label.tolist() == criterion.history.highest_label.tolist() == label
    unknown = ranking_trainer(tmp_path, train_set=Stream(indexed=False), criterion=criterion, max_steps=steps)
    with pytest.raises(ValueError, match="a stream must have it: the position of each sample in the set that the"):
        unknown.train()


def test_mistakes_are_explained(tmp_path):
    made = partial(ranking_trainer, tmp_path)
    with pytest.raises(ValueError, match="expected criterion to be a CorrectnessRankingLoss, but got 1.0"):
        made(criterion=1.0)
    with pytest.raises(ValueError, match="a history of the 21 training samples, but got one of 20; create it with"):
        made(criterion=ranking_loss(20))
    with pytest.raises(
        ValueError, match="label_smoothing_factor=0.1; set label_smoothing on the CorrectnessRankingLoss"
    ):
        made(label_smoothing_factor=0.1)
    with pytest.raises(ValueError, match="one loss, but got criterion and compute_loss_func"):
        made(given={"compute_loss_func": lambda *given, **options: None})
    with pytest.raises(ValueError, match="expected labels in a training batch, but got input_ids"):
        made(train_set=[{"input_ids": row["input_ids"]} for row in samples()]).train()
    with pytest.raises(
        ValueError, match="'index' in a training batch, but got input_ids, labels; your data_collator must"
    ):
        made(given={"data_collator": partial(stacked, without="index")}).train()

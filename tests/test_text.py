"""Classification of texts: vocabulary, networks, data files, and the way from training to a threshold."""

import csv
import json
import random

import numpy as np
import pytest
import torch
from PIL import Image

from confrank import models
from confrank.classify_texts import answer_texts
from confrank.cli.app import parsed
from confrank.cli.train import config_of
from confrank.config import RunConfig
from confrank.data import hold_out, load
from confrank.data.texts import read_texts
from confrank.data.vocabulary import count_words, decode, encode, refit, words_of
from confrank.metrics import auroc
from confrank.predictions import read
from confrank.runs.trained import load_trained, save_weights_file
from confrank.training import train

GOOD, BAD, NEUTRAL = "fine great lovely superb", "dull awful boring poor", "the film was a story with some people"


def _rows(count=200):
    draw = random.Random(0)
    rows = []
    for number in range(count):
        telling = (GOOD if number % 2 else BAD).split()
        words = [*draw.choices(NEUTRAL.split(), k=draw.randint(2, 9)), *draw.choices(telling, k=2)]
        rows.append((" ".join(draw.sample(words, len(words))), "good" if number % 2 else "bad"))
    return rows


def _write(path, rows, header=("text", "label")):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def _read(path):
    with path.open(newline="") as file:
        return [*csv.DictReader(file)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run on generated texts, next to its data."""
    folder = tmp_path_factory.mktemp("text")
    data = _write(folder / "reviews.csv", [*_rows()])
    settings = {"epochs": 8, "optimizer": "adamw", "lr": 0.03, "batch_size": 32, "holdout": 0.25}
    config = RunConfig(dataset=str(data), model="bag-of-embeddings", **settings)
    train(config, folder / "run", device="cpu")
    return folder / "run"


# Vocabulary


def test_known_words_survive_encoding_and_decoding():
    texts = ["The cat's hat, the dog.", "A dog — no cat"]
    vocabulary = count_words(texts, length=10)
    assert vocabulary[:2] == ("dog", "the")  # twice each, in alphabetical order
    for text, tokens in zip(texts, encode(texts, vocabulary, 10), strict=True):
        assert decode(tokens.tolist(), vocabulary).split() == words_of(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("我喜欢电影。", "我 喜 欢 电 影"),  # Chinese
        ("猫とテレビPC", "猫 と テレビpc"),  # Japanese: a run of Katakana is a word
        ("ดีมาก", "ดี ม า ก"),  # Thai: a vowel sign stays with its letter
        ("हिन्दी में", "हिन्दी में"),  # Hindi
        ("좋은 영화", "좋은 영화"),  # Korean has spaces
        ("Cafe\u0301 café ＣＤ", "café café cd"),  # one character, however it is written
        ("so good😀👍❤\ufe0f ⭐", "so good 😀 👍 ❤ ⭐"),
    ],
)
def test_words_of_scripts_without_spaces_and_emoji_are_characters(text, words):
    assert words_of(text) == words.split()


def test_a_vocabulary_is_refitted_as_if_built_from_the_remaining_texts():
    texts = [text for text, _ in _rows(40)]
    everything = count_words(texts, length=6)
    tokens = encode(texts, everything, 6)
    vocabulary, number = refit(tokens[:10], everything, size=9)
    expected = count_words(texts[:10], length=6)[:9]
    assert vocabulary == expected
    np.testing.assert_array_equal(number[tokens], encode(texts, expected, 6))


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_words_of_test_and_held_out_texts_are_unknown(tmp_path, share):
    rows = [(f"shared word{number}", "ab"[number % 2], "test" if number > 29 else "train") for number in range(40)]
    data = load(str(_write(tmp_path / "t.csv", [*rows], ("text", "label", "split"))))
    used, held_out = hold_out(data, share)
    known = {word for tokens in used.train.images for word in decode(tokens.tolist(), used.vocabulary).split()}
    assert known == {*used.vocabulary} and len(known) == 1 + len(used.train)
    for split in (used.test, held_out) if held_out else (used.test,):
        assert {decode(tokens.tolist(), used.vocabulary) for tokens in split.images} == {"shared …"}


def test_words_beyond_the_size_and_the_length_are_not_used(tmp_path):
    path = _write(tmp_path / "t.csv", [*_rows(60)])
    used, _ = hold_out(load(str(path), text_length=4, vocabulary_size=3), 0)
    assert used.train.images.shape[1] == 4 and used.train.images.max() == 4 and len(used.vocabulary) == 3
    assert used.in_channels == 5


# Networks


def test_a_bag_of_embeddings_is_the_mean_over_the_words():
    network = models.create("bag-of-embeddings", 3, in_channels=12)
    assert isinstance(network, models.TextNetwork)
    tokens = torch.tensor([[2, 5, 5, 0, 0], [1, 0, 0, 0, 0], [3, 4, 6, 7, 11]], dtype=torch.int32)
    expected = []
    for row in tokens.tolist():
        vectors = [network.embedding.weight[number] for number in row if number != 0]
        mean = sum(vectors[1:], vectors[0]) / len(vectors)
        expected.append(network.head.weight @ mean + network.head.bias)
    torch.testing.assert_close(network(tokens), torch.stack(expected))


@pytest.mark.parametrize("name", models.TEXT_MODELS)
def test_padding_does_not_change_the_logits(name):
    torch.manual_seed(0)
    network = models.create(name, 2, in_channels=50, variance_head=True).eval()
    tokens = torch.randint(1, 50, (4, 7), dtype=torch.int32)
    padded = torch.nn.functional.pad(tokens, (0, 9))
    for short, long in zip(network(tokens), network(padded), strict=True):
        torch.testing.assert_close(short, long)
    assert network(torch.zeros_like(tokens))[0].isfinite().all()


def test_the_encoder_sees_the_order_of_words_and_the_bag_does_not():
    torch.manual_seed(0)
    tokens = torch.tensor([[3, 4, 5, 6]], dtype=torch.int32)

    def difference(name):
        network = models.create(name, 2, in_channels=9).eval()
        both = [network(each) for each in (tokens, tokens.flip(1))]
        return float((both[0] - both[1]).abs().max().detach())

    assert difference("bag-of-embeddings") < 1e-6 < 1e-3 < difference("text-encoder")


@pytest.mark.parametrize("method", ["crl-entropy", "mcdropout", "aleatoric-mc"])
def test_methods_train_the_encoder(run, tmp_path, method):
    config = RunConfig(
        dataset=str(run.parent / "reviews.csv"), model="text-encoder", method=method, epochs=1, lr=0.01,
        text_length=8, batch_size=64,
        head="linear" if method == "aleatoric-mc" else "cosine",
    )  # fmt: skip
    finished = train(config, tmp_path / "run", device="cpu")
    assert finished.evaluations["test"].metrics["acc"] is not None


# From training to decisions


def test_a_run_learns_and_predicts_as_it_was_evaluated(command, run, capsys):
    stored = read(run / "predictions" / "test.safetensors")
    assert json.loads((run / "metrics.json").read_text())["metrics"]["acc"] > 0.95
    command("predict", str(run), "--out", str(run.parent / "again.safetensors"), "--device", "cpu")
    again = read(run.parent / "again.safetensors")
    np.testing.assert_array_equal(stored.logits, again.logits)
    rows = _read(run.parent / "reviews.csv")
    labels = [rows[int(key)]["label"] for key in stored.key]
    assert labels == [("bad", "good")[label] for label in stored.label]
    capsys.readouterr()


def test_a_file_of_texts_trains_with_defaults_that_suit_texts(command, run, tmp_path, capsys):
    flags = ("--dataset", run.parent / "reviews.csv", "--epochs", "1", "--device", "cpu")
    command("train", *flags, "--out", tmp_path / "run")
    assert "1 epoch with adamw, initial learning rate 0.003\n" in capsys.readouterr().out
    config = load_trained(tmp_path / "run").provenance.config
    assert (config.model, config.method) == ("bag-of-embeddings", "baseline")
    command("train", *flags, "--method", "crl-softmax", "--lr", "0.01", "--out", tmp_path / "other")
    config = load_trained(tmp_path / "other").provenance.config
    assert (config.method, config.lr, config.optimizer) == ("crl-softmax", 0.01, "adamw")


@pytest.mark.parametrize(
    ("flags", "epochs"),
    [
        ((), 200),  # 160 texts to train on: two batches of 128
        (("--holdout", "0.25"), 400),
        (("--batch-size", "16"), 40),
        (("--batch-size", "4"), 20),
        (("--epochs", "1"), 1),
    ],
)
def test_few_texts_are_trained_on_for_more_epochs(monkeypatch, run, flags, epochs):
    monkeypatch.chdir(run.parent)
    assert _epochs("--dataset", "reviews.csv", *flags) == epochs
    assert _epochs("--dataset", "moved/reviews.csv", "--root", str(run.parent), *flags) == epochs


def test_the_epochs_depend_on_the_training_split_alone(tmp_path):
    rows = [(text, label, "test" if row > 9 else "Train") for row, (text, label) in enumerate(_rows(3000))]
    path = _write(tmp_path / "t.csv", [*rows], ("text", "label", "split"))
    assert _epochs("--dataset", str(path)) == 400


def _epochs(*flags: str) -> int:
    """The epochs that `confrank train` with these flags would train for."""
    given = parsed(["train", *flags]).keywords
    return config_of(given["settings"], given.get("config", ()), given.get("root")).epochs


def test_the_epochs_of_few_texts_are_no_departure_from_a_recipe(command, tmp_path, capsys):
    path, flags = _write(tmp_path / "t.csv", [*_rows(20)]), ("--recipe", "best", "--device", "cpu")
    command("train", "--dataset", path, *flags, "--clip", 1, "--batch-size", 2, "--out", tmp_path / "run")
    printed = " ".join(capsys.readouterr().out.split())
    assert "50 epochs with adamw" in printed
    assert "departures from the recipe best: --batch-size 2, --clip 1.0 " in printed


@pytest.mark.slow
def test_a_first_run_on_a_hundred_texts_learns(command, tmp_path):
    command("train", "--dataset", _write(tmp_path / "t.csv", [*_rows(100)]), "--out", tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]
    assert metrics["acc"] > 0.9 and metrics["nll"] < 0.35


def test_data_check_counts_texts(command, run, capsys):
    command("data", "check", run.parent / "reviews.csv")
    printed = " ".join(capsys.readouterr().out.split())
    assert "texts of up to 256 words" in printed and "train: 160 texts, 2 classes of 80" in printed


def test_evaluate_and_threshold_take_the_run(command, run, capsys):
    command("evaluate", str(run), "--report", str(run.parent / "page.html"), "--json", str(run.parent / "e.json"))
    assert "no images" not in capsys.readouterr().out
    command("threshold", str(run / "predictions" / "holdout.safetensors"), "--risk", "0.4")
    assert "threshold" in capsys.readouterr().out


def test_new_texts_get_the_answers_of_the_test_split(command, run, capsys):
    out, query = run.parent / "answers.csv", run.parent / "ask.csv"
    command("predict", str(run), "--texts", str(run.parent / "reviews.csv"), "--out", str(out), "--threshold", "0.9")
    answers = _read(out)
    stored = read(run / "predictions" / "test.safetensors")
    assert next(iter(answers[0])) == "id"
    confidence = [float(answers[int(key)]["confidence"]) for key in stored.key]
    np.testing.assert_allclose(confidence, stored.confidence, rtol=1e-6)
    capsys.readouterr()
    command(
        "active", "query", "--pool", str(out), "--count", "3", "--strategy", "least-confidence", "--out", str(query)
    )
    least = sorted(answers, key=lambda row: float(row["confidence"]))[:3]
    assert {row["path"] for row in _read(query)} == {row["id"] for row in least}


def test_a_weights_file_classifies_texts(run, tmp_path):
    save_weights_file(run, tmp_path / "w.safetensors")
    path = _write(tmp_path / "new.csv", [("a great and lovely film", "x1"), ("dull, poor", "x2")], ("text", "id"))
    answers = answer_texts(tmp_path / "w.safetensors", path)
    assert answers.predictions == ["good", "bad"] and answers.paths == ["x1", "x2"]


def test_the_vocabulary_is_stored_with_the_run_alone(run):
    record = load_trained(run).provenance
    assert "lovely" in record.vocabulary and record.input_kind == "text" and record.input_shape == (256,)
    assert "vocabulary" not in read(run / "predictions" / "test.safetensors").metadata


def test_other_words_are_other_data(tmp_path):
    rows = _rows(40)
    one = load(str(_write(tmp_path / "one.csv", [*rows])))
    two = load(str(_write(tmp_path / "two.csv", [(text.replace("film", "filn"), label) for text, label in rows])))
    assert np.array_equal(one.test.images, two.test.images) and one.digest() != two.digest()


def test_json_lines_equal_csv(tmp_path):
    rows = _rows(30)
    lines = "\n".join(json.dumps({"text": text, "label": label}) for text, label in rows)
    (tmp_path / "t.jsonl").write_text(lines + "\n\n")
    sets = [load(str(tmp_path / "t.jsonl")), load(str(_write(tmp_path / "t.csv", [*rows])))]
    assert sets[0].digest() == sets[1].digest() and len(sets[0].test) == 6
    assert np.bincount(sets[0].test.labels).tolist() == [3, 3]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(("mark", "end"), [(";", "\r\n"), ("\t", "\n"), ("|", "\r\n")])
def test_a_file_of_texts_as_a_spreadsheet_writes_it(tmp_path, encoding, mark, end):
    """Semicolons are usual where the decimal mark is a comma."""
    rows = _rows(30)
    lines = [("Text", " Y_true "), *((f'"{text}, {mark}\n{text}"', f" {label} ") for text, label in rows)]
    (tmp_path / "t.csv").write_text(end.join(map(mark.join, lines)), encoding=encoding, newline="")
    plain = _write(tmp_path / "plain.csv", [(f"{text}, {mark}\n{text}", label) for text, label in rows])
    assert load(str(tmp_path / "t.csv")).digest() == load(str(plain)).digest()


def test_out_of_distribution_texts_are_detected_by_logits(command, run, capsys, tmp_path):
    texts = [(f"stock {GOOD.split()[number % 4]} fell " + "the film " * (number % 3),) for number in range(20)]
    other = _write(tmp_path / "other.csv", [*texts], ("text",))
    names, flags = ["max-probability", "energy"], ["--tuning", "none", "--device", "cpu"]
    command("ood", run, "--against", other, "--detectors", *names, *flags, "--json", tmp_path / "ood.json")
    results = json.loads((tmp_path / "ood.json").read_text())["runs"][0]["outcomes"]
    answers = answer_texts(run, other)
    test = read(run / "predictions" / "test.safetensors").confidence
    assert [result["detector"] for result in results] == names
    confidence = np.concatenate([test, answers.confidence])
    expected = auroc(confidence, np.arange(len(confidence)) < len(test))
    assert 0 < expected < 1
    assert results[0]["metrics"]["auroc"] == pytest.approx(expected)
    capsys.readouterr()
    command("ood", run, "--against", other, "--device", "cpu", "--json", tmp_path / "ood.json")  # what suits texts
    assert "tuning: none, nothing out-of-distribution was used before the test\n" in capsys.readouterr().out
    again = json.loads((tmp_path / "ood.json").read_text())["runs"][0]["outcomes"]
    assert {*names} < {result["detector"] for result in again} and again[0]["metrics"] == results[0]["metrics"]
    capsys.readouterr()
    command("ood", run, "--against", other, "--detectors", "odin", *flags, code=2)
    assert "only the logits for texts, but got odin" in capsys.readouterr().err
    command("ood", run, "--against", "digits", "--detectors", *names, *flags, code=2)
    assert "expected texts, as" in capsys.readouterr().err


# Faults


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text,class\nhello,a\n", "text and label .* label missing; rename the columns"),
        (b"fine film,good\npoor film,bad\n", "but got .*: text and label missing; .* add a line with their names"),
        (b"text;label\nhello;a;b\n", "expected 2 values in line 2, as in the header, but got 3; .* or semicolons"),
        (b"text,label,Text\nhello,a,b\n", "expected a different name for each column, but got text, label, text"),
        (b"text,text,label,\nhello,bye,a,\n", "expected a different name for each column, but got text, text, label"),
        (b"text,label\nhello,a\n  ,b\n", "expected a text in every row .* row 1 "),
        (b"text,label\nhello,a\nbye,\n", "expected a label in every row .* row 1 "),
        (b"text,label\nhello,0\nbye,1\nwho,NaN\n", "expected a label in every row .* row 2 "),
        (b"text,label\nhello,a\nbye,a\n", "at least two classes .* but got a alone"),
        (b"text,label\nhello,a\ncaf\xe9,b\n", "in UTF-8, but line 3 holds byte 0xe9"),
        (b"text,label,split\nhello,a,train\nbye,b,later\n", "train or test .* but got later"),
        (b"text,label,split\nhello,a,train\nbye,b,test\n", "training texts of every class .* none of b"),
        (b"text,label,split\nhello,a,train\nbye,b,train\n", "expected test texts"),
        (b"text,label\n", "expected texts in .* none"),
        (b'text,label\n"hello,a\n', "expected a CSV file"),
    ],
)
def test_faults_of_a_csv_are_named(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path / "t.csv"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a", "label": 1}\n[1]\n', "line 2, but got list"),
        ('{"text": "a", "label": 1}\n{"text":\n', "line 2"),
        ('{"text": "a", "text": "b", "label": 1}\n', "line 1, but: expected distinct names .* 'text' twice"),
        ('{"text": ["a"], "label": 1}\n', "text to be a string .* row 0 .* list"),
        ('{"text": "a", "label": null}\n', "expected a label in every row"),
    ],
)
def test_faults_of_json_lines_are_named(tmp_path, content, message):
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path / "t.jsonl"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "small"}, "network for texts, but got small"),
        ({"mix": "mixup"}, "images to mix, .* set .mix. to none"),
        ({"augment": "trivial"}, "images to augment"),
        ({"mirror": True}, "images to mirror"),
        ({"flip": True}, "images to shift or mirror"),
        ({"padding": 2}, "images to shift or mirror"),
        ({"image_size": 8}, "image size only for a folder"),
    ],
)
def test_settings_for_images_are_refused(run, tmp_path, settings, message):
    values = {"dataset": str(run.parent / "reviews.csv"), "model": "bag-of-embeddings", "epochs": 1, **settings}
    with pytest.raises(ValueError, match=message):
        train(RunConfig(**values), tmp_path / "run", device="cpu")


def test_networks_for_texts_refuse_images(tmp_path):
    with pytest.raises(ValueError, match="network for images, but got text-encoder"):
        train(RunConfig(model="text-encoder", epochs=1), tmp_path / "run", device="cpu")


def test_a_run_on_texts_refuses_images(command, run, capsys, tmp_path):
    (tmp_path / "new").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "new" / "a.png")
    command("predict", run, "--images", tmp_path / "new", "--out", tmp_path / "a.csv", code=2)
    assert "trained on texts; use --texts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("splits", "sizes", "note"),
    [
        (["train", "train", "Train", "TEST", "test"], (3, 2), None),
        (["train", "train", "train", "val", "val"], (3, 2), "no split test: the texts of val are tested"),
        (["train", "train", "val", "test", "val"], (2, 1), "2 texts of the split val are not used"),
    ],
)
def test_splits_of_texts_have_the_names_of_folders(tmp_path, splits, sizes, note):
    rows = [f"word{row},{'ab'[row % 2]},{split}\n" for row, split in enumerate(splits)]
    (tmp_path / "t.csv").write_text("text,label,split\n" + "".join(rows))
    data = load(str(tmp_path / "t.csv"))
    assert (len(data.train), len(data.test)) == sizes
    untested = ["no test samples of a"] if sizes == (2, 1) else []
    assert data.notes == (*([note] if note else []), "2 classes: a, b", *untested)


@pytest.mark.parametrize(("text", "label"), [("review", "sentiment"), ("Content", "Category"), ("tweet", "target")])
def test_tab_separated_texts_with_other_column_names_equal_csv(tmp_path, text, label):
    rows = [('says "no, never"' if row % 3 else "fine", "a" if row % 2 else "b") for row in range(20)]
    plain = load(str(_write(tmp_path / "t.csv", [*rows])))
    (tmp_path / "t.tsv").write_text(f"{label}\t{text}\n" + "".join(f"{b}\t{a}\n" for a, b in rows))
    other = load(str(tmp_path / "t.tsv"))
    assert other.digest() == plain.digest() and other.name == "t"
    assert RunConfig(dataset="t.tsv").run_name == RunConfig(dataset="t.csv").run_name


def test_a_column_named_as_texts_or_labels_comes_before_one_that_is_supposed_to_be(tmp_path):
    (tmp_path / "t.csv").write_text("comment,sentence,target,category\nnote,hello,a,x\nnote,bye,b,y\n")
    content = read_texts(tmp_path / "t.csv", labelled=True)
    assert (content.texts, content.labels) == (["hello", "bye"], ["a", "b"])


@pytest.mark.parametrize("name", ["sentence", "Review"])
def test_the_column_of_texts_has_other_names(tmp_path, name):
    (tmp_path / "t.csv").write_text(f"{name},Label\nhello,a\nbye,b\n")
    assert read_texts(tmp_path / "t.csv", labelled=True).texts == ["hello", "bye"]
    (tmp_path / "t.csv").write_text("Body,Target\nhello,a\nbye,b\n")
    with pytest.raises(ValueError, match="but got Body, Target: text missing"):
        read_texts(tmp_path / "t.csv", labelled=True)
    (tmp_path / "both").mkdir()
    for split in ("train", "test"):
        (tmp_path / "both" / f"{split}.csv").write_text("text,label\nhello,a\n")
    with pytest.raises(
        ValueError, match="one file of texts, but .*both holds test.csv, train.csv; .* a column split"
    ):
        load(str(tmp_path / "both"))


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_copies_of_a_text_are_on_the_same_side_of_a_split(tmp_path, share):
    rows = [(f"text {number % 120} about nothing", "abc"[number % 3]) for number in range(300)]
    data = load(str(_write(tmp_path / "t.csv", [*rows])))
    used, held = hold_out(data, share)
    parts = [used.train, data.test, *([held] if held else [])]
    texts = [{rows[int(key)][0] for key in part.path} for part in parts]
    assert sum(map(len, texts)) == len(set.union(*texts)) == 120 and sum(map(len, parts)) == 300
    assert min(map(len, parts)) > 30


def test_a_text_with_many_copies_does_not_take_most_texts_out_of_training(tmp_path):
    rows = [("ok", "a"), ("no", "b")] * 90 + [(f"text {number}", "ab"[number % 2]) for number in range(120)]
    data = load(str(_write(tmp_path / "t.csv", rows)))
    for seed in range(20):
        used, held = hold_out(data, 0.3, seed)
        assert len(used.train) > len(data.train) / 2
        assert not {*map(bytes, used.train.images)} & {*map(bytes, held.images)}

"""Active learning on texts: rounds of asking, labelling and training; and what happens to bad input."""

import csv
import json
import random

import numpy as np
import pytest
import torch

from confrank.active.labelled import read_labelled
from confrank.active.pool import open_pool
from confrank.active.query import ask_pool
from confrank.active.text_pool import TextPool
from confrank.classify_texts import answer_texts
from confrank.config import RunConfig
from confrank.data import hold_out, load
from confrank.data.vocabulary import decode, encode
from confrank.runs.trained import load_trained
from confrank.training import train

GOOD, BAD, NEUTRAL = "fine great lovely superb", "dull awful boring poor", "the film was a story with some people"


def _texts(count=120):
    """Texts with all that CSV makes difficult; even rows are bad, odd ones good."""
    draw = random.Random(0)
    texts = []
    for number in range(count):
        words = [*draw.choices(NEUTRAL.split(), k=8), *draw.choices((GOOD if number % 2 else BAD).split(), k=2)]
        text = " ".join(draw.sample(words, len(words)))
        texts.append({0: f'={text}, "so"', 1: f"{text}\r\nand more", 2: f"{text}\rend"}.get(number % 9, text))
    return texts


def _write(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return path


def _read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def _label(name):
    return "good" if int(name.removeprefix("r")) % 2 else "bad"


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    rows = [{"id": f"r{number}", "text": text} for number, text in enumerate(_texts())]
    return _write(tmp_path_factory.mktemp("texts") / "pool.csv", rows)


@pytest.fixture(scope="module")
def run(pool):
    """A run on other texts of the same kind."""
    rows = [{"text": text, "label": _label(str(row))} for row, text in enumerate(_texts(60))]
    data = _write(pool.parent / "labelled-texts.csv", rows)
    config = RunConfig(dataset=str(data), model="bag-of-embeddings", epochs=4, optimizer="adamw", lr=0.02)
    train(config, pool.parent / "run", device="cpu")
    return pool.parent / "run"


def test_rounds_of_asking_labelling_and_training(command, pool, tmp_path, capsys):
    labelled, asked = tmp_path / "labelled.csv", tmp_path / "to_label.csv"
    labelled.write_text("id,label\n")
    texts = {row["id"]: row["text"] for row in _read(pool)}
    network = ()
    for number, strategy in enumerate(("random", "least-confidence", "core-set")):
        flags = ("--pool", pool, "--labelled", labelled, "--device", "cpu")
        command("active", "query", *network, *flags, "--strategy", strategy, "--count", 20, "--out", asked)
        rows = _read(asked)
        value = {"random": [], "core-set": ["distance"]}.get(strategy, ["confidence"])
        assert [*rows[0]] == ["id", "label", *value, "text"] and len(rows) == 20
        # An apostrophe protects what a spreadsheet would take for a formula; line breaks are plain.
        assert all(row["text"].removeprefix("'").split() == texts[row["id"]].split() for row in rows)
        with labelled.open("a", newline="", encoding="utf-8") as file:  # a filled-in query, with its header
            answers = csv.DictWriter(file, [*rows[0]])
            answers.writeheader()
            answers.writerows([{**row, "label": _label(row["id"])} for row in rows])
        asked.unlink()
        network = (tmp_path / f"round{number}",)
        command("active", "train", *flags, "--epochs", 20, "--lr", 0.05, "--out", *network)
        with np.load(network[0] / "history.npz") as history:
            assert len(history["index"]) == 16 * (number + 1)
    assert json.loads((network[0] / "metrics.json").read_text())["metrics"]["acc"] > 0.9
    record = load_trained(network[0]).provenance
    assert record.config.optimizer == "adamw" and record.config.model == "bag-of-embeddings"
    assert record.config.method == "baseline"
    capsys.readouterr()
    command("predict", *network, code=2)
    error = capsys.readouterr().err
    assert "has none; a run that was trained on the labels of a pool can be evaluated (confrank evaluate)" in error


@pytest.mark.parametrize("strategy", ["least-confidence", "margin", "entropy"])
def test_a_query_ranks_texts_by_the_answers_of_predict(run, pool, tmp_path, strategy):
    options = {"scores": tmp_path / "scores", "on_note": print}
    question = ask_pool(pool, None, strategy, 120, run=run, device=torch.device("cpu"), **options)
    answers = answer_texts(run, pool)
    surest = dict(zip(answers.paths, answers.confidence, strict=True))
    # With two classes, all three strategies rank as the maximum probability does.
    ranked = [surest[name] for name in question.names]
    assert sorted(question.names) == sorted(surest) and ranked == sorted(ranked)
    if strategy == "least-confidence":
        np.testing.assert_allclose(np.asarray(question.values), ranked, rtol=1e-6)


def test_core_set_measures_distances_between_means_of_word_vectors(command, run, pool, tmp_path):
    known, out = tmp_path / "known.csv", tmp_path / "q.csv"
    known.write_text("id,label\nr3,good\n")
    command("active", "query", run, "--pool", pool, "--labelled", known, "--strategy", "core-set", "--out", out,
            "--count", 1, "--device", "cpu")  # fmt: skip
    trained = load_trained(run)
    vectors = trained.network.get_parameter("embedding.weight").detach().double().numpy()
    tokens = encode([row["text"] for row in _read(pool)], trained.provenance.vocabulary, 256)
    means = np.stack([vectors[row[row > 0]].mean(axis=0) for row in tokens])
    gaps = np.linalg.norm(means - means[3], axis=1)
    (first,) = _read(out)
    assert first["id"] == f"r{gaps.argmax()}" and float(first["distance"]) == pytest.approx(gaps.max(), rel=1e-4)


def test_json_lines_without_ids_are_named_by_their_rows(run, pool, tmp_path):
    lines = [json.dumps({"text": row["text"]}) for row in _read(pool)]
    (tmp_path / "pool.jsonl").write_text("\n".join(lines) + "\n")
    named = ask_pool(pool, None, "margin", 9, run=run, scores=tmp_path / "a", on_note=print)
    plain = ask_pool(tmp_path / "pool.jsonl", None, "margin", 9, run=run, scores=tmp_path / "b", on_note=print)
    assert [f"r{name}" for name in plain.names] == named.names
    assert np.array_equal(np.asarray(plain.values), np.asarray(named.values))


def test_scores_of_other_texts_are_not_reused(run, pool, tmp_path):
    def ask():
        return ask_pool(tmp_path / "p.csv", None, "margin", 4, run=run, scores=tmp_path / "s", on_note=print).names

    rows = [{"text": row["text"]} for row in _read(pool)]
    _write(tmp_path / "p.csv", rows)
    before = ask()
    _write(tmp_path / "p.csv", rows[::-1])
    assert [int(name) for name in ask()] == [119 - int(name) for name in before]


def test_a_network_trained_on_part_of_the_texts_reads_all_of_them(pool):
    rows = [{"text": f"shared word{number}", "label": "ab"[number % 2]} for number in range(50)]
    data = load(str(_write(pool.parent / "words.csv", rows)))
    part, _ = hold_out(data, 0.5)
    for tokens, own in zip(data.train_in_words_of(part.vocabulary).images, data.train.images, strict=True):
        expected = [
            word if word in part.vocabulary else "…" for word in decode(own.tolist(), data.vocabulary).split()
        ]
        assert decode(tokens.tolist(), part.vocabulary).split() == expected


def test_classes_that_the_run_does_not_know_are_named(run, pool, tmp_path):
    (tmp_path / "k.csv").write_text("id,label\nr0,bad\nr1,strange\n")
    notes = []
    labelled = read_labelled(tmp_path / "k.csv", notes.append)
    ask_pool(pool, labelled, "margin", 3, run=run, scores=tmp_path / "s", on_note=notes.append)
    assert [f"has classes that {run} does not know: strange" in note for note in notes] == [True]


def test_a_run_scores_the_texts_of_a_file_with_other_scores(run, pool, tmp_path):
    rows = [{**row, "score": str(number / 200)} for number, row in enumerate(_read(pool))]
    stars, notes = _write(tmp_path / "stars.csv", rows), []

    def ask(path, by):
        scores = tmp_path / f"{path.stem}-scores"
        return ask_pool(path, None, "least-confidence", 9, run=by, scores=scores, on_note=notes.append).names

    assert ask(stars, run) == ask(pool, run) and not notes
    assert ask(stars, None) == [f"r{number}" for number in range(9)]
    plain = [{"path": row["id"], "score": row["score"]} for row in rows]
    assert ask(_write(tmp_path / "plain.csv", plain), run) == ask(stars, None)
    assert [note.endswith(f"holds confidence, so {run} is not used") for note in notes] == [True]


# Faults


def test_pools_as_spreadsheets_write_them(tmp_path):
    for content, encoding in (
        ("id,text\nr1,hello\n", "utf-16"),
        ('sep=;\r\nid;Text\r\nr1;"hello; you"\r\n', "utf-8-sig"),
        ('id\ttext\nr1\t"two\nlines"\n', "utf-8"),
    ):
        (tmp_path / "p.csv").write_text(content, encoding=encoding, newline="")
        pool = open_pool(tmp_path / "p.csv")
        assert isinstance(pool, TextPool) and pool.names == ["r1"]
        assert pool.texts[0] in ("hello", "hello; you", "two\nlines")


def test_a_pool_in_another_encoding_says_how_to_convert_it(tmp_path):
    (tmp_path / "p.csv").write_text("id,text\nr1,caf\u00e9\n", encoding="cp1252")
    with pytest.raises(ValueError, match="line 2 holds byte 0xe9; save it as UTF-8 .Excel: CSV UTF-8., or run iconv"):
        open_pool(tmp_path / "p.csv")


@pytest.mark.parametrize(
    ("content", "known", "message"),
    [
        ("id,body\nr1,hello\n", "id,label\n", "logit_* or feature_*, or text, in"),
        ("text\n", "id,label\n", "expected texts in"),
        ("", "id,label\n", "p.csv: expected a predictions file, but it is empty"),
        ("id;text\nr1;hello\n", "id,label\n0,a\n1;b\n", "not ';', in appended rows"),
        ("id,text\n,hello\n", "id,label\n", "expected an id in every row of"),
        (
            "id, text\nr1,well, yes\n",
            "id,label\n",
            "expected 2 values in line 2, as in the header, but got 3; put texts with commas",
        ),
        ("text,note\nhello,a\n  ,b\n", "id,label\n", "but 1 of 2 have none: row 1 (counted from 0)"),
        ("id,text\nr1,hello\nr1,bye\n", "id,label\n", "expected each id once in"),
        ("text\nhello\n", "id,label\n0,good\n", "all 1 are in"),
        ("text\nhello\nbye\n", "name,label\n0,good\n", "(for texts, id and label), but got name, label"),
        (
            "text\nhello\nbye\n",
            "id,label,text\n0,good,bye\n",
            "but got another text for 0; use the pool of these labels",
        ),
        ("text\nhello\nbye\n", "id,label\n0,good\n0,bad\n", "but got two for 0 (good and bad)"),
    ],
)
def test_mistakes_of_a_query_are_explained(
    command,
    run,
    tmp_path,
    capsys,
    content,
    known,
    message,
):
    (tmp_path / "p.csv").write_text(content)
    (tmp_path / "k.csv").write_text(known)
    flags = ("--pool", tmp_path / "p.csv", "--labelled", tmp_path / "k.csv", "--out", tmp_path / "q.csv")
    command("active", "query", run, *flags, "--device", "cpu", code=2)
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1
    assert not (tmp_path / "q.csv").exists()


@pytest.mark.parametrize(
    ("known", "flags", "message"),
    [
        ("id,label\nr0,bad\nr999,good\n", (), "expected ids of the pool in"),
        ("id,label\nr0,bad\nr2,bad\n", (), "expected at least two classes"),
        ("id,label\nr0,bad\nr1,good\nr2,bad\nr3,good\n", ("--model", "small"), "network for texts, but got small"),
        ("id,label\nr0,bad\nr1,good\nr2,bad\nr3,good\n", ("--image-size", 8), "image size only for images"),
        ("id,label\nr0,bad\nr1,good\n", ("--test-share", 0), "set --test or --test-share"),
        ("id,label,text\nr0,bad,other\nr1,good,\n", (), "but got another text for r0"),
    ],
)
def test_mistakes_of_a_training_are_explained(
    command,
    pool,
    tmp_path,
    capsys,
    known,
    flags,
    message,
):
    (tmp_path / "k.csv").write_text(known)
    flags = ("--test-share", 0.5, *flags, "--epochs", 1, "--out", tmp_path / "run", "--device", "cpu")
    command("active", "train", "--pool", pool, "--labelled", tmp_path / "k.csv", *flags, code=2)
    assert message in capsys.readouterr().err


def test_a_run_on_texts_does_not_score_images(command, run, tmp_path, capsys):
    np.savez(tmp_path / "p.npz", images=np.zeros((3, 8, 8), dtype=np.uint8))
    command("active", "query", run, "--pool", tmp_path / "p.npz", "--out", tmp_path / "q.csv", code=2)
    assert "expected a pool of texts, as" in capsys.readouterr().err


def test_a_question_is_written_like_the_file_of_labels(command, pool, tmp_path, capsys):
    labelled, asked = tmp_path / "labelled.csv", tmp_path / "to_label.csv"
    labelled.write_text("ID;Label\r\nr0;bad\r\n", encoding="utf-8-sig", newline="")
    flags = ("--pool", pool, "--labelled", labelled, "--strategy", "random", "--count", 3, "--out", asked)
    command("active", "query", *flags)
    assert "3 samples to label, in random order" in capsys.readouterr().out
    content = asked.read_bytes()
    assert content.startswith("\ufeffid;label;text\n".encode())
    answers = content.decode("utf-8-sig").replace(";;", ";good;", 1)
    labelled.write_text(labelled.read_text(encoding="utf-8-sig") + answers, encoding="utf-8-sig")
    assert len(read_labelled(labelled, print).labels) == 2
    labelled.write_text("id;label\nr0;bad\nr1,good\n")
    with pytest.raises(ValueError, match="use the separator of the first line, not ',', in appended rows"):
        read_labelled(labelled, print)

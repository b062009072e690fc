"""The tool of a labelling team, from pictures to the next question; and what happens to bad input."""

import csv
import io
import json
import os
import signal
import socket
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import SERVER
from PIL import Image

from confrank.active.labelled import read_labelled
from confrank.active.labelled_set import labelled_set
from confrank.active.pool import open_pool
from confrank.active.query import ask_pool
from confrank.active.scoring import chunk_size
from confrank.cli import main
from confrank.config import RunConfig
from confrank.data import Split, load
from confrank.files import write_atomically
from confrank.methods import penultimate, predict_split
from confrank.runs.trained import load_trained
from confrank.training import train

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    train(RunConfig(epochs=2, batch_size=90, lr=0.05), out, device=CPU)
    return out


@pytest.fixture(scope="module")
def images():
    return load("digits").test.images[:40]


@pytest.fixture
def pool(tmp_path, images):
    folder = tmp_path / "pool"
    (folder / "deep").mkdir(parents=True)
    for place, image in enumerate(images):
        name = f"deep/{place:02d}.png" if place % 2 else f"{place:02d}.png"
        Image.fromarray(image[:, :, 0]).save(folder / name)
    return folder


def command(*arguments):
    with pytest.raises(SystemExit) as stop:
        main(["active", *map(str, arguments)])
    return stop.value.code


def table(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))


def by_hand(run, *views):
    """Softmax in numpy of one pass over all images, or its mean over several views of them."""
    data, trained = load("digits"), load_trained(run)
    zeros = np.zeros(len(views[0]), dtype=np.int64)
    probabilities = []
    for images in views:
        split = Split(images, zeros, zeros)
        logits = predict_split(trained.method, trained.network, split, data.mean, data.std).logits
        power = np.exp(logits.astype(float))
        probabilities.append(power / power.sum(axis=1, keepdims=True))
    return np.mean(probabilities, axis=0).max(axis=1)


def test_query_asks_the_least_sure_pictures(run, pool, images, tmp_path, capsys):
    (tmp_path / "labelled.csv").write_text("path,label\n00.png,3\ndeep/01.png,4\ndeep/03.png,\n")
    out = tmp_path / "to_label.csv"
    flags = ("--pool", pool, "--labelled", tmp_path / "labelled.csv", "--count", 7, "--out", out, "--device", "cpu")
    assert command("query", run, *flags) == 0
    rows = table(out)
    names = [f"deep/{place:02d}.png" if place % 2 else f"{place:02d}.png" for place in range(40)]
    surest = by_hand(run, images)
    order = [place for place in np.argsort(surest) if place not in (0, 1, 3)][:7]
    assert [row["path"] for row in rows] == [names[place] for place in order]
    assert [float(row["confidence"]) for row in rows] == pytest.approx(surest[order], rel=1e-5)
    assert {row["label"] for row in rows} == {""}
    printed = capsys.readouterr().out
    assert "1 sample of" in printed and "without a label yet, not chosen again" in printed
    with Image.open(out.with_suffix(".png")) as sheet:
        assert sheet.size == (7 * 102 + 6, 116 + 6)
        corner = np.asarray(sheet)[6 : 6 + 96, 6 : 6 + 96]
    assert np.array_equal(corner[6::12, 6::12, 0], images[order[0], :, :, 0])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "labelled.csv",
        "pool",
        "to_label.csv",
        "to_label.png",
    ]


def test_a_query_is_as_sure_as_the_predictions_of_a_mirrored_run(images, tmp_path):
    train(RunConfig(epochs=1, batch_size=90, lr=0.05, mirror=True), tmp_path / "run", device=CPU)
    np.savez(tmp_path / "pool.npz", images=images)
    flags = ("--pool", tmp_path / "pool.npz", "--count", 40, "--out", tmp_path / "q.csv", "--device", "cpu")
    assert command("query", tmp_path / "run", *flags) == 0
    asked = {int(row["path"]): float(row["confidence"]) for row in table(tmp_path / "q.csv")}
    expected = by_hand(tmp_path / "run", images, images[:, :, ::-1])
    assert [asked[row] for row in range(40)] == pytest.approx(expected, rel=1e-5)


def test_the_contact_sheet_shows_files_uncut(run, tmp_path):
    wide = np.full((60, 120, 3), 255, dtype=np.uint8)
    wide[:, :20], wide[:, 100:] = (255, 0, 0), (0, 0, 255)
    (tmp_path / "pool").mkdir()
    Image.fromarray(wide).save(tmp_path / "pool" / "a.png")
    flags = ("--strategy", "random", "--pool", tmp_path / "pool", "--count", 1, "--image-size", 8)
    assert command("query", *flags, "--out", tmp_path / "q.csv") == 0
    with Image.open(tmp_path / "q.png") as sheet:
        middle = np.asarray(sheet)[6 + 48, 6 : 6 + 96]
    assert middle[[4, 48, 91]].tolist() == [[255, 0, 0], [255, 255, 255], [0, 0, 255]]


def test_an_archive_of_images_gives_the_same_question(run, images, tmp_path, monkeypatch):
    monkeypatch.setattr("confrank.active.image_pool.BLOCK_BYTES", 64 * 7)  # the stream crosses block borders
    np.savez_compressed(tmp_path / "pool.npz", images=images[..., 0], path=[f"x{place}" for place in range(40)])
    assert command("query", run, "--pool", tmp_path / "pool.npz", "--count", 5, "--out", tmp_path / "a.csv") == 0
    order = np.argsort(by_hand(run, images))[:5]
    assert [row["path"] for row in table(tmp_path / "a.csv")] == [f"x{place}" for place in order]
    rows = np.array([2, 3, 13, 39])
    assert np.array_equal(np.stack(list(open_pool(tmp_path / "pool.npz").pictures(rows))), images[rows])


def test_core_set_starts_from_the_labelled_and_writes_distances(run, pool, images, tmp_path):
    labelled = tmp_path / "labelled.csv"
    labelled.write_text("path,label\n00.png,1\n02.png,1\n")
    out = tmp_path / "q.csv"
    assert command("query", run, "--pool", pool, "--labelled", labelled, "--strategy", "core-set", "--count", 3,
                   "--out", out, "--device", "cpu") == 0  # fmt: skip
    data, trained = load("digits"), load_trained(run)
    zeros = np.zeros(40, dtype=np.int64)
    seen = penultimate(trained.network, Split(images, zeros, zeros), data.mean, data.std).numpy().astype(float)
    gaps = np.array([min(np.linalg.norm(seen[row] - seen[known]) for known in (0, 2)) for row in range(40)])
    first = table(out)[0]
    assert int(first["path"].removesuffix(".png")[-2:]) == gaps.argmax()
    assert float(first["distance"]) == pytest.approx(gaps.max(), rel=1e-4)
    flags = ("--strategy", "core-set", "--count", 3, "--out", out, "--device", "cpu")
    assert command("query", run, "--pool", pool, *flags) == 0  # without labels there is nothing to be far from
    assert [*table(out)[0]] == ["path", "label"] and len(table(out)) == 3


def test_a_stopped_query_resumes_without_scoring_again(run, pool, tmp_path, monkeypatch):
    monkeypatch.setattr("confrank.active.scoring.CHUNK_ROWS", 8)
    options = {"run": run, "scores": tmp_path / "scores", "device": CPU, "on_note": print}
    whole = ask_pool(pool, None, "margin", 6, **options | {"scores": tmp_path / "other"})
    calls, progress = [], []

    def stop_after_three(path, content):
        write_atomically(path, content)
        if path.name.startswith("chunk-"):
            calls.append(path.name)
            if len(calls) == 3 and not progress:
                raise KeyboardInterrupt

    monkeypatch.setattr("confrank.active.scoring.write_atomically", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        ask_pool(pool, None, "margin", 6, **options)
    options["on_progress"] = lambda done, total: progress.append((done, total))
    again = ask_pool(pool, None, "margin", 6, **options)
    assert calls == [f"chunk-{place:06d}.npz" for place in range(5)]
    assert progress == [(24, 40), (32, 40), (40, 40)]
    assert again.names == whole.names and np.array_equal(again.values, whole.values)
    calls.clear()
    ask_pool(pool, None, "entropy", 6, **options)  # another question: nothing is reused
    assert len(calls) == 5


def ask_and_stop(held, arguments):
    """A query in a process of its own, which stops itself after its first chunk and tells so by the file `held`."""
    from confrank.active import scoring

    def write(path, content):
        write_atomically(path, content)
        if path.name.startswith("chunk-") and not held.exists():
            held.touch()
            os.kill(os.getpid(), signal.SIGSTOP)

    scoring.CHUNK_ROWS, scoring.write_atomically = 8, write
    main(["active", *map(str, arguments)])


@contextmanager
def stopped(held, *arguments):
    """A process that runs this query and stands still after its first chunk."""
    process = SERVER.Process(target=ask_and_stop, args=(held, arguments))
    process.start()
    try:
        while not held.exists():
            assert process.is_alive()
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.join()


def test_a_second_query_with_the_same_out_is_refused(run, pool, tmp_path, capsys):
    out, alone, flags = tmp_path / "q.csv", tmp_path / "alone.csv", ("--pool", pool, "--count", 7, "--device", "cpu")
    with stopped(tmp_path / "held", "query", run, *flags, "--out", out) as process:
        for other in ("margin", "random", "least-confidence"):
            assert command("query", run, *flags, "--strategy", other, "--out", out) == 2
            error = (
                f"expected no other query to write {out}, but process {process.pid} on {socket.gethostname()} does"
            )
            assert capsys.readouterr().err == f"confrank: error: {error}; wait for it, or choose another --out\n"
            assert not out.exists()
        os.kill(process.pid, signal.SIGCONT)
        process.join(60)
        assert process.exitcode == 0
    assert command("query", run, *flags, "--out", alone) == 0
    assert out.read_text() == alone.read_text()
    names = ["alone.csv", "alone.png", "held", "pool", "q.csv", "q.png"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("kind", ["folder", "npz"])
def test_scores_of_a_pool_that_was_replaced_are_computed_again(kind, run, pool, images, tmp_path, monkeypatch):
    """The new images have the names of the old ones and, in the archive, their size."""
    np.savez(tmp_path / "pool.npz", images=images)
    source, out, alone = (
        pool if kind == "folder" else tmp_path / "pool.npz",
        tmp_path / "q.csv",
        tmp_path / "alone.csv",
    )
    flags = ("--pool", source, "--count", 7, "--device", "cpu", "--out")
    with stopped(tmp_path / "held", "query", run, *flags, out):
        pass  # killed here
    np.savez(tmp_path / "pool.npz", images=images[::-1])
    for path, image in zip(sorted(pool.rglob("*.png")), images, strict=True):
        Image.fromarray(image[::-1, :, 0]).save(path)
    monkeypatch.setattr("confrank.active.scoring.CHUNK_ROWS", 8)
    assert command("query", run, *flags, out) == 0
    assert command("query", run, *flags, alone) == 0
    assert out.read_text() == alone.read_text()


def test_scores_of_an_earlier_version_are_computed_again(run, pool, tmp_path):
    options = {"run": run, "scores": tmp_path / "scores", "device": CPU, "on_note": print}
    now = ask_pool(pool, None, "margin", 6, **options)
    key = json.loads((tmp_path / "scores/key.json").read_text())
    key.pop("version", None)  # which the first version did not write
    (tmp_path / "scores/key.json").write_text(json.dumps(key, indent=1, sort_keys=True) + "\n")
    none = {"bad_rows": np.empty(0, dtype=np.int64), "why": np.empty(0, dtype=str)}
    np.savez(tmp_path / "scores/chunk-000000.npz", rows=np.arange(40), values=np.arange(40.0), **none)
    again = ask_pool(pool, None, "margin", 6, **options)
    assert again.names == now.names and np.array_equal(again.values, now.values)


@pytest.mark.parametrize("kind", ["npz", "csv", "safetensors"])
def test_precomputed_predictions_need_no_model(tmp_path, kind):
    p = np.random.default_rng(0).dirichlet(np.ones(4), 30)
    path = tmp_path / f"said.{kind}"
    if kind == "npz":
        np.savez(path, probabilities=p)
        np.savez(tmp_path / "whole.npz", logits=np.array([[3, 1], [2, 2]]))
        assert ask_pool(
            tmp_path / "whole.npz", None, "margin", 1, run=None, scores=tmp_path, on_note=print
        ).names == ["1"]
    elif kind == "csv":
        lines = [",".join([str(row), *map(repr, map(float, values))]) for row, values in enumerate(p)]
        path.write_text("path,probability_a,probability_b,probability_c,probability_d\n" + "\n".join(lines) + "\n")
    else:
        from safetensors.numpy import save_file

        save_file({"logits": np.log(p)}, path)
    (tmp_path / "labelled.csv").write_text("path,label\n5,a\n")
    out = tmp_path / "q.csv"
    assert command("query", "--pool", path, "--labelled", tmp_path / "labelled.csv", "--strategy", "margin",
                   "--count", 4, "--out", out) == 0  # fmt: skip
    gap = np.sort(p, axis=1)[:, -1] - np.sort(p, axis=1)[:, -2]
    order = [row for row in np.argsort(gap) if row != 5][:4]
    assert [int(row["path"]) for row in table(out)] == order
    assert [float(row["confidence"]) for row in table(out)] == pytest.approx(gap[order])
    assert not out.with_suffix(".png").exists()


def test_embeddings_and_random_need_no_model(tmp_path):
    np.savez(tmp_path / "seen.npz", embeddings=np.array([[0.0], [2.0], [9.0], [10.0]]))
    (tmp_path / "labelled.csv").write_text("path,label\n0,a\n")
    flags = ("--pool", tmp_path / "seen.npz", "--labelled", tmp_path / "labelled.csv", "--count", 2)
    assert command("query", *flags, "--strategy", "core-set", "--out", tmp_path / "q.csv") == 0
    assert [(row["path"], row["distance"]) for row in table(tmp_path / "q.csv")] == [("3", "10"), ("1", "2")]
    assert command("query", *flags, "--strategy", "random", "--out", tmp_path / "r.csv") == 0
    assert "0" not in {row["path"] for row in table(tmp_path / "r.csv")}
    assert command("query", *flags, "--strategy", "entropy", "--out", tmp_path / "e.csv") == 2
    assert not (tmp_path / "e.csv").exists()


def test_unreadable_unknown_and_repeated_ones_are_named(run, pool, tmp_path, capsys):
    (pool / "04.png").write_bytes(b"not a picture")
    labelled = tmp_path / "labelled.csv"
    labelled.write_text("path,label\n00.png,3\n00.png,3\nmoved.png,4\n")
    assert command("query", run, "--pool", pool, "--labelled", labelled, "--count", 39, "--out", tmp_path / "q.csv",
                   "--device", "cpu") == 0  # fmt: skip
    printed = capsys.readouterr().out
    assert "has 00.png more than once, with the same label; counted once" in printed
    assert "has 1 path outside the pool: moved.png" in printed
    assert "skipped 1 unreadable image:" in printed and f"{pool / '04.png'}" in printed
    assert "warning: asked for 39 samples, but the pool has only 38: all of them are chosen" in printed
    chosen = {row["path"] for row in table(tmp_path / "q.csv")}
    assert len(chosen) == 38 and {"00.png", "04.png"}.isdisjoint(chosen)


def unreadable(pool, folder):
    for path in pool.rglob("*.png"):
        path.write_bytes(b"no")


def all_labelled(pool, folder):
    rows = "".join(f"{path.relative_to(pool)},1\n" for path in pool.rglob("*.png"))
    (folder / "labelled.csv").write_text(f"path,label\n{rows}")


def archive(folder, **arrays):
    np.savez_compressed(folder / "p.npz", **arrays)
    return {"pool": folder / "p.npz"}


def damaged(pool, folder):
    flags = archive(folder, images=load("digits").test.images)
    content = bytearray(flags["pool"].read_bytes())
    content[len(content) // 2] ^= 255
    flags["pool"].write_bytes(content)
    return flags


AS_IN_THE_HEADER = "expected 2 values in line {}, as in the header, but got"


@pytest.mark.parametrize(
    ("mistake", "message"),  # a file of labels, or what changes the files and returns other flags
    [
        (lambda pool, folder: (folder / "p").mkdir() or {"pool": folder / "p"}, "expected samples in the pool, but"),
        (unreadable, "expected readable images, but none of 40 is readable"),
        (all_labelled, "all 40 are in"),
        ("path,label\n00.png,3\n00.png,4\n", "one label for each sample in .* but got two for 00.png (3 and 4)"),
        ("file,class\n00.png,3\n", "expected the columns path and label .* but got file, class"),
        (lambda pool, folder: (folder / "labelled.csv").unlink(), "labelled.csv does not exist"),
        (
            lambda pool, folder: Image.new("L", (9, 8)).save(pool / "00.png"),
            "expected images of 8x8, as the network was trained on, but 00.png is 9x8",
        ),
        (
            lambda pool, folder: Image.new("RGB", (8, 8), "red").save(pool / "00.png"),
            "expected images of 1 channel, but 00.png has 3",
        ),
        (lambda pool, folder: archive(folder, confidence=np.ones(3), path=[*"aba"]), "but got a more than once"),
        (lambda pool, folder: {"pool": folder / "nowhere"}, "nowhere, which does not exist"),
        (
            lambda pool, folder: (folder / "p.npz").write_bytes(b"PK") and {"pool": folder / "p.npz"},
            "p.npz cannot be read",
        ),
        (damaged, "expected an intact .npz file, but"),
        (lambda pool, folder: archive(folder, images=np.zeros((3, 8, 8))), "but got float64 of shape [3, 8, 8]"),
        *(
            (
                lambda pool, folder, shape=shape: archive(folder, images=np.zeros(shape, np.uint8)),
                "to be uint8 of shape",
            )
            for shape in [(4, 0, 8), (4, 8, 0), (4, 8, 8, 0)]
        ),
        (lambda pool, folder: {"strategy": "mc-entropy"}, "expected a run of mcdropout for mc-entropy"),
        (
            "path,label\n00.png,cat\ndeep/01.png,catpath,label\n02.png,dog\n",
            f"{AS_IN_THE_HEADER.format(3)} deep/01.png, catpath, label; is a line break missing",
        ),
        (
            "path,label\n00.png,cat02.png,dog,0.53\n",
            f"{AS_IN_THE_HEADER.format(2)} 00.png, cat02.png, dog, 0.53; is a line break missing",
        ),
        (
            "path,label\n00.png,302.png,4\n",
            f"{AS_IN_THE_HEADER.format(2)} 00.png, 302.png, 4; is a line break missing",
        ),
        (lambda pool, folder: {"subset": 0}, "expected --subset to be at least 1, but got 0"),
        (lambda pool, folder: {"seed": -3}, "expected --seed to be at least 0, but got -3"),
        (
            lambda pool, folder: (pool / "00.png").rename(os.fsdecode(os.fsencode(pool) + b"/caf\xe9.png")) and None,
            "expected names in UTF-8 without spaces around them in .* but got 'caf\\udce9.png'; rename it",
        ),
        (lambda pool, folder: (pool / "00.png").rename(pool / " 00.png") and None, "but got ' 00.png'; rename it"),
        (lambda pool, folder: {"out": folder / "labelled.csv"}, "is an input of this command; choose another path"),
        (lambda pool, folder: {"out": pool / "00.csv"}, "whose images this command reads, but got"),
    ],
)
def test_mistakes_are_explained_and_nothing_is_written(run, pool, tmp_path, capsys, mistake, message):
    out, labelled = tmp_path / "q.csv", tmp_path / "labelled.csv"
    out.write_text("path,label\nlast.png,\n")
    labelled.write_text(mistake if isinstance(mistake, str) else "path,label\n")
    changes = {} if isinstance(mistake, str) else mistake(pool, tmp_path) or {}
    flags = {"pool": pool, "labelled": labelled, "out": out, **changes}
    given = [part for name, value in flags.items() for part in (f"--{name}", value)]
    assert command("query", run, "--count", 3, "--device", "cpu", *given) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    for part in message.split(" .* "):
        assert part in errors
    assert out.read_text() == "path,label\nlast.png,\n"
    assert not out.with_suffix(".png").exists()


def test_a_question_never_replaces_labels(pool, tmp_path, capsys):
    labelled, asked = tmp_path / "labelled.csv", tmp_path / "to_label.csv"
    labelled.write_text("path,label\n")

    def ask(*flags):
        code = command("query", "--pool", pool, "--strategy", "random", "--count", 3, "--out", asked, *flags)
        return code, capsys.readouterr().err

    asked.touch()
    assert ask("--labelled", labelled)[0] == 0
    assert ask("--labelled", labelled, "--seed", 1)[0] == 0  # nobody has answered
    filled = asked.read_text().replace(",\n", ",7\n", 1)
    name = table(asked)[0]["path"]
    asked.write_text(filled)
    for flags, into in ((("--labelled", labelled), labelled), ((), "the file of --labelled")):
        code, error = ask(*flags)
        assert code == 2 and error.count("\n") == 1
        assert f"which is replaced, but got 1: {name}; append its rows to {into} first" in error
        assert asked.read_text() == filled
    labelled.write_text(f"path,label\n{name},8\n")  # another answer
    assert ask("--labelled", labelled)[0] == 2
    labelled.write_text(filled)
    assert ask("--labelled", labelled)[0] == 0
    asked.write_text("path;label\n00.png;7\n")  # as some spreadsheets save it
    code, error = ask("--labelled", labelled)
    assert code == 2 and "which is replaced, but got 1: 00.png; append its rows" in error
    assert asked.read_text() == "path;label\n00.png;7\n"


def test_rounds_of_asking_and_training(pool, tmp_path):
    """Answers are appended as they come back, and the next training and question know them."""
    truth = load("digits").test.labels[:40]
    labelled, asked = tmp_path / "labelled.csv", tmp_path / "to_label.csv"
    labelled.write_text("path,label\n")
    network = ()
    for rounds, strategy in enumerate(("random", "margin")):
        flags = ("--pool", pool, "--labelled", labelled, "--device", "cpu")
        assert command("query", *network, *flags, "--strategy", strategy, "--count", 10, "--out", asked) == 0
        rows = table(asked)
        answers = [f"{row['path']},{truth[int(row['path'][-6:-4])] % 2}\n" for row in rows]
        asked.write_text("".join(["path,label\n", *answers]))
        labelled.write_text(labelled.read_text() + "".join(answers))
        out = tmp_path / f"round{rounds}"
        settings = ["--model", "small", "--method", "baseline"]
        settings += ["--epochs", 1, "--batch-size", 10, "--test-share", 0.3]
        assert command("train", *flags, *settings, "--out", out) == 0
        network = (out,)
        with np.load(out / "history.npz") as history:
            assert len(history["index"]) == 7 * (rounds + 1)
    lines = labelled.read_text().splitlines()[1:]
    assert len(lines) == len({line.split(",")[0] for line in lines}) == 20


def test_training_on_answers_takes_the_very_images_and_labels(pool, images, tmp_path):
    (tmp_path / "l.csv").write_text("path,label\n02.png,cat\n00.png,dog\ndeep/01.png,cat\n")
    (tmp_path / "t.csv").write_text("path,label\n04.png,ape\n")
    labelled, test = (read_labelled(tmp_path / name, print) for name in ("l.csv", "t.csv"))
    data = labelled_set(pool, labelled, test, share=0)
    assert data.class_names == ("ape", "cat", "dog")
    assert data.notes[-1] == f"warning: {test.path} has classes without training samples: ape"
    assert np.array_equal(data.train.images, images[[0, 2, 1]])
    assert data.train.labels.tolist() == [2, 1, 1]
    assert np.array_equal(data.test.images, images[[4]]) and data.test.labels.tolist() == [0]
    assert data.mean == pytest.approx([images[[0, 2, 1]].mean() / 255])
    (tmp_path / "t.csv").write_text("path,label\n00.png,dog\n")
    with pytest.raises(ValueError, match="not trained on, but .* shares 00.png"):
        labelled_set(pool, labelled, read_labelled(tmp_path / "t.csv", print), share=0)
    (tmp_path / "l.csv").write_text("path,label\n02.png,cat\nnowhere.png,dog\n")
    with pytest.raises(ValueError, match="expected paths of the pool in .*, but got nowhere.png"):
        labelled_set(pool, read_labelled(tmp_path / "l.csv", print), test, share=0)
    (pool / "02.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"expected an 8-bit PNG.*02\.png"):
        labelled_set(pool, labelled, test, share=0)


def test_committed_curves_are_complete():
    kept = json.loads(Path("results/active/digits-small.json").read_text())
    config, curves = kept["config"], kept["curves"]
    with np.load("results/active/digits-small.npz") as asked:
        for name in config["strategies"]:
            assert len(curves[name]) == len(config["trials"]) == 5
            for trial, stages in zip(config["trials"], curves[name], strict=True):
                rows = asked[f"{name}-trial{trial}"]
                assert len({*rows.tolist()}) == len(rows) == config["stages"] * config["per_stage"]
                counts = [config["per_stage"] * (place + 1) for place in range(config["stages"])]
                assert [stage["labelled"] for stage in stages] == counts
                first = asked[f"random-trial{trial}"][: config["per_stage"]]
                assert np.array_equal(rows[: config["per_stage"]], first)


def test_names_that_evaluate_knows_are_known_here(tmp_path):
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]])
    np.savez(tmp_path / "p.NPZ.npz", probs=probabilities, Paths=np.array(["a", "b", "c"]))
    (tmp_path / "p.NPZ.npz").rename(tmp_path / "p.NPZ")
    (tmp_path / "p.csv").write_text("Path,prob_cat,prob_dog\na,0.9,0.1\nb,0.4,0.6\nc,0.5,0.5\n")
    for name in ("p.NPZ", "p.csv"):
        pool = open_pool(tmp_path / name)
        assert list(pool.names) == ["a", "b", "c"]
        assert np.array_equal(pool.arrays["probabilities"], probabilities)
    (tmp_path / "two.csv").write_text("path,score,conf\na,0.9,0.1\n")
    with pytest.raises(ValueError, match="expected one confidence, but got score, conf"):
        open_pool(tmp_path / "two.csv")


@pytest.mark.parametrize(
    ("header", "role"),
    [
        ("path,confidence,p_value", "confidence"),
        ("path,confidence,score", "confidence"),
        ("path,feature_0,feature_1,p_id", "features"),
        ("path,probability_a,probability_b,p_best", "probabilities"),
    ],
)
def test_other_columns_stay_what_they_are(tmp_path, header, role):
    values = "a,0.9,0.1" + (",0.5" if header.count(",") == 3 else "")
    (tmp_path / "p.csv").write_text(f"{header}\n{values}\n")
    pool = open_pool(tmp_path / "p.csv")
    assert list(pool.arrays) == [role]
    assert pool.arrays[role].tolist() == ([0.9] if role == "confidence" else [[0.9, 0.1]])


def test_other_arrays_stay_what_they_are(tmp_path):
    np.savez(tmp_path / "p.npz", features=np.eye(2), logit_scale=np.float64(3), p_train=np.ones(2))
    assert list(open_pool(tmp_path / "p.npz").arrays) == ["features"]
    np.savez(tmp_path / "p.npz", features=np.eye(2), logits=np.float64(3))
    with pytest.raises(ValueError, match="expected the same number of rows|expected logits of numbers"):
        open_pool(tmp_path / "p.npz")
    np.savez(tmp_path / "p.npz", probabilities=np.full((4, 2), 0.5), features=np.zeros((5, 3)))
    with pytest.raises(ValueError, match="rows in each array of .*, but got 4 in probabilities, 5 in features"):
        open_pool(tmp_path / "p.npz")


def test_answers_may_be_appended_with_and_without_their_header(tmp_path):
    path = tmp_path / "labelled.csv"
    path.write_text("label,path\ncat, a.png\npath, label,confidence\nb.png ,dog ,0.5\nc.png,,0.6\n\n")
    labelled = read_labelled(path, print)
    assert labelled.labels == {"a.png": "cat", "b.png": "dog"}
    assert labelled.waiting == ("c.png",)
    path.write_text("path,label\na.png,cat\nb.png,dog,0.5\nc.png,dog,,\n")
    assert read_labelled(path, print).labels == {"a.png": "cat", "b.png": "dog", "c.png": "dog"}


def test_names_in_bytes_and_scores_between_other_marks(tmp_path):
    np.savez(tmp_path / "p.npz", confidence=np.ones(2), path=np.array([b"a.png", "é.png".encode()]))
    assert open_pool(tmp_path / "p.npz").names == ["a.png", "é.png"]
    (tmp_path / "p.csv").write_text("path;probability_a;probability_b\na.png;0.9;0.1\n\n b.png;0.6;0.4\n\n")
    pool = open_pool(tmp_path / "p.csv")
    assert pool.names == ["a.png", "b.png"] and pool.arrays["probabilities"].tolist() == [[0.9, 0.1], [0.6, 0.4]]


def test_labels_are_frozen_when_their_run_begins(pool, tmp_path, capsys):
    labelled, out = tmp_path / "labelled.csv", tmp_path / "runs" / "one"
    rows = [f"{path.relative_to(pool)},{place % 2}\n" for place, path in enumerate(sorted(pool.rglob("*.png")))]
    flags = ("--pool", pool, "--labelled", labelled, "--out", out, "--epochs", 1, "--device", "cpu")
    labelled.write_text("path,label\n" + "".join(rows[:20]))
    assert command("train", *flags, "--model", "no_such:network") == 2
    assert not out.exists() and not list(tmp_path.glob("runs/*"))
    labelled.write_text("path,label\n" + "".join(rows[:24]))
    assert command("train", *flags, "--model", "small") == 0
    labelled.write_text("path,label\n" + "".join(rows[:26]))
    assert command("train", *flags, "--model", "small") == 2
    error = capsys.readouterr().err
    assert "with which the run" in error and "has others; choose another --out" in error


def test_another_picture_next_to_the_question_is_not_overwritten(pool, tmp_path, capsys):
    (tmp_path / "mine.png").write_bytes(b"a picture of mine")
    flags = ["query", "--pool", pool, "--strategy", "random", "--count", "3", "--out", tmp_path / "mine.csv"]
    assert command(*flags) == 2
    assert "mine.png is another picture; choose another --out" in capsys.readouterr().err
    assert (tmp_path / "mine.png").read_bytes() == b"a picture of mine"
    flags[-1] = tmp_path / "new.csv"
    assert command(*flags) == command(*flags) == 0  # its own sheet is written again


def test_an_image_above_the_limit_of_memory_is_a_chunk_of_its_own():
    assert chunk_size([8192, 8192, 3]) == 1

"""A folder with the parts of one file, as distributed jobs write them."""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from packing import packed
from pyarrow import parquet

from confrank import evaluate
from confrank.predictions import read

rng = np.random.default_rng(3)
LOGITS = rng.normal(size=(50, 3))
LABEL = rng.integers(0, 3, 50)
METRICS = evaluate(logits=LOGITS, label=LABEL).metrics
INDEX = np.arange(50)
WORDS = np.array(["cat", "dog", "owl"])


def metrics_of(path, **options):
    return evaluate(**read(path, **options).evaluation_inputs()).metrics


def write_ranks(folder, name="preds_rank{}.pt", world=8, padded=True, index="index"):
    """The rows of each process as a DistributedSampler gives them: padded at the end, so that all have as many."""
    sampled = np.resize(INDEX, -(-50 // world) * world) if padded else INDEX
    folder.mkdir()
    for rank in range(world):
        rows = torch.tensor(sampled[rank::world])
        part = {"logits": torch.tensor(LOGITS)[rows], "label": torch.tensor(LABEL)[rows]}
        torch.save(part | ({index: rows} if index else {}), folder / name.format(rank))


def test_the_padding_of_a_distributed_sampler_is_left_out(tmp_path):
    write_ranks(tmp_path / "ranks")
    loaded = read(tmp_path / "ranks")
    assert len(loaded) == 50 and sorted(loaded.index) == list(range(50))
    assert "8 parts, 6 rows repeated in another part left out" in loaded.describe()
    assert evaluate(**loaded.evaluation_inputs()).metrics == pytest.approx(METRICS)
    write_ranks(tmp_path / "even", padded=False, index="id")
    assert read(tmp_path / "even").notes == ("8 parts",)


def test_rounding_of_a_copy_does_not_matter_but_other_predictions_do(tmp_path):
    write_ranks(tmp_path / "ranks")
    path = tmp_path / "ranks" / "preds_rank7.pt"
    part = torch.load(path)
    torch.save(part | {"logits": part["logits"] + 1e-4}, path)
    assert len(read(tmp_path / "ranks")) == 50
    torch.save(part | {"logits": part["logits"].flip(1)}, path)
    with pytest.raises(
        ValueError, match="a value of index is in preds_rank5.pt and, with other predictions, in preds_r"
    ):
        read(tmp_path / "ranks")


def test_files_of_several_models_are_no_parts(tmp_path):
    """Without a column that identifies samples, only their names say so."""
    write_ranks(tmp_path / "seeds", "preds_{}.pt", index=None)
    with pytest.raises(
        ValueError, match="preds_0.pt and preds_1.pt may be of two; add a column index or id, or call"
    ):
        read(tmp_path / "seeds")
    write_ranks(tmp_path / "chunks", "preds_chunk{}.pt", padded=False, index=None)
    assert metrics_of(tmp_path / "chunks") == pytest.approx(METRICS)
    (tmp_path / "models").mkdir()
    for seed in range(2):
        logits = np.random.default_rng(seed).normal(size=(50, 3))
        np.savez(tmp_path / "models" / f"preds_{seed}.npz", logits=logits, label=LABEL, id=INDEX)
    with pytest.raises(
        ValueError, match="a value of id is in preds_0.npz and, with other predictions, in preds_1.npz"
    ):
        read(tmp_path / "models")


@pytest.mark.parametrize("name", ["epoch_0000{}.npz", "ckpt-00000{}.npz", "rank0_seed{}.npz", "model0000{}.npz"])
def test_numbers_of_versions_do_not_make_parts(tmp_path, name):
    """Each file is complete; together, rows would count several times."""
    (tmp_path / "f").mkdir()
    for number in (1, 2):
        np.savez(tmp_path / "f" / name.format(number), logits=LOGITS + number, label=LABEL)
    with pytest.raises(ValueError, match="may be of two; add a column index or id"):
        read(tmp_path / "f")
    write_ranks(tmp_path / "one", "epoch_3_rank{}_v2.pt", padded=False, index=None)
    assert metrics_of(tmp_path / "one") == pytest.approx(METRICS)


def tables():
    """The rows in three parts of different lengths, with words that some parts lack."""
    columns = {f"logit_{name}": LOGITS[:, k] for k, name in enumerate(WORDS)}
    order = np.argsort(LABEL, kind="stable")
    whole = pa.table({"file": [f"{k}.png" for k in INDEX], "label": WORDS[LABEL], **columns}).take(order)
    return [whole.slice(0, 10), whole.slice(10, 35), whole.slice(45)]


@pytest.mark.parametrize("ending", [".snappy.parquet", ".csv", ".csv.gz", ".json", ".arrow"])
def test_spark_and_datasets(tmp_path, ending):
    folder = tmp_path / f"out{ending}"  # Spark calls the folder like a file
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    (folder / ".part-00000.crc").touch()
    for number, table in zip((0, 1, 3), tables(), strict=True):  # a part without rows is absent
        path = folder / f"part-0000{number}-5f2a-c000{ending}"
        if "parquet" in ending:
            parquet.write_table(table, path)
        elif ending == ".arrow":
            with pa.ipc.new_stream(path, table.schema) as file:
                file.write_table(table)
        elif ending == ".json":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        else:
            lines = [table.column_names, *zip(*table.to_pydict().values(), strict=True)]
            text = "".join(",".join(map(str, line)) + "\n" for line in lines).encode()
            path.write_bytes(packed(path.name, text) if ending == ".csv.gz" else text)
    loaded = read(folder)
    assert loaded.class_names == list(WORDS) and loaded.key_name == "file"
    assert evaluate(**loaded.evaluation_inputs()).metrics == pytest.approx(METRICS)
    assert loaded.notes == ("3 parts",)


def save(folder, *names):
    folder.mkdir()
    for number, name in enumerate(names):
        rows = INDEX[number :: len(names)]
        np.savez(folder / name, logits=LOGITS[rows], label=LABEL[rows], index=rows)
        (folder / f"{name}.npz").rename(folder / name) if not name.endswith(".npz") else None


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["p-0.npz", "p-2.npz"], "without gaps, but number 1 is missing in p-0.npz to p-2.npz; add it"),
        (["p-2.npz", "p-3.npz"], "without gaps, but number 1 is missing in p-2.npz to p-3.npz"),
        (["p-0-of-3.npz", "p-1-of-3.npz"], "expected 3 parts, but got 2; add the others"),
        (["a.npz", "b.npz"], "it is a folder with a.npz, b.npz; give one file, or a folder that has only"),
        (["p-0.npz", "p-1.txt"], "it is a folder with p-0.npz, p-1.txt"),
        (["p-0.pkl"], "p-0.pkl: expected a predictions file, but got one ending in .pkl"),
        ([], "it is a folder; give one file"),
    ],
)
def test_folders_that_hold_something_else(tmp_path, names, message):
    save(tmp_path / "f", *names)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "f")


def test_numbers_may_start_at_1_and_files_of_datasets_are_known(tmp_path):
    save(tmp_path / "a", "p-1.npz", "p-2.npz")
    assert metrics_of(tmp_path / "a") == pytest.approx(METRICS)
    save(
        tmp_path / "b", *(f"data-0000{k}-of-00011.npz" if k < 10 else f"data-000{k}-of-00011.npz" for k in range(11))
    )
    (tmp_path / "b" / "state.json").write_text("{}")
    (tmp_path / "b" / "dataset_info.json").write_text("{}")
    assert metrics_of(tmp_path / "b") == pytest.approx(METRICS)


def test_parts_that_do_not_fit(tmp_path):
    save(tmp_path / "f", "p-0.npz", "p-1.npz")
    np.savez(tmp_path / "f" / "p-1.npz", logits=LOGITS, target=LABEL)
    with pytest.raises(
        ValueError, match="same columns in each part, but p-0.npz has logits, label, index, and p-1.npz"
    ):
        read(tmp_path / "f")
    np.savez(tmp_path / "f" / "p-1.npz", logits=LOGITS[:, :2], label=LABEL % 2, index=INDEX)
    with pytest.raises(
        ValueError, match=r"logits to have as many columns in each part, but got shapes \[25, 3\], \[50"
    ):
        read(tmp_path / "f")
    np.savez(tmp_path / "f" / "p-1.npz", logits=LOGITS, label=WORDS[LABEL], index=INDEX)
    with pytest.raises(ValueError, match="label to be text in all parts, or numbers in all, but got both"):
        read(tmp_path / "f")
    (tmp_path / "f" / "p-1.npz").write_bytes(b"")
    with pytest.raises(ValueError, match="p-1.npz: expected a predictions file, but it is empty"):
        read(tmp_path / "f")


def test_single_arrays_need_labels_in_each_part(tmp_path):
    (tmp_path / "f").mkdir()
    for rank in range(2):
        np.save(tmp_path / "f" / f"rank{rank}.npy", LOGITS[rank::2])
    np.save(tmp_path / "label.npy", LABEL)
    with pytest.raises(
        ValueError, match="labels in each part, but the parts are single arrays, whose rows may be in any"
    ):
        read(tmp_path / "f", truth=tmp_path / "label.npy")
    correct = LOGITS.argmax(axis=1) == LABEL
    for part in range(2):
        rows = np.stack([LOGITS.max(axis=1), correct], axis=1)[part::2]
        np.save(tmp_path / "f" / f"rank{part}.npy", rows)
    assert metrics_of(tmp_path / "f")["acc"] == correct.mean()
    np.save(tmp_path / "label.npy", LABEL[:25])  # as long as a part
    with pytest.raises(ValueError, match="column that identifies the rows of the parts"):
        read(tmp_path / "f", truth=tmp_path / "label.npy")


def test_labels_of_another_file_or_folder(tmp_path):
    whole = pa.concat_tables(tables())
    for folder, columns in (("preds", [0, 2, 3, 4]), ("truth", [0, 1])):
        (tmp_path / folder).mkdir()
        for number, table in enumerate(tables()):
            parquet.write_table(table.select(columns), tmp_path / folder / f"part.{number}.parquet")
    parquet.write_table(whole.select([0, 1]), tmp_path / "truth.parquet")
    for truth in ("truth", "truth.parquet"):
        assert metrics_of(tmp_path / "preds", truth=tmp_path / truth) == pytest.approx(METRICS)


def test_the_limit_counts_all_parts(tmp_path):
    (tmp_path / "f").mkdir()
    text = b"confidence,correct\n" + b"0.5,1\n" * 100_000
    for number in range(3):
        (tmp_path / "f" / f"part-{number}.csv.gz").write_bytes(packed("a.gz", text))
    assert len(read(tmp_path / "f", max_gigabytes=0.002)) == 300_000
    with pytest.raises(ValueError, match=r"at most 0.001 GB when unpacked, but got 1.[0-9] MB"):
        read(tmp_path / "f", max_gigabytes=0.001)


def test_commands_read_folders_and_protect_their_files(tmp_path, capsys, command):
    folder = tmp_path / "preds.csv"
    folder.mkdir()
    header = "id,label,prediction,confidence"
    for part in range(2):
        rows = [f"{part}{k},{k % 2},{k % 2 if k % 5 else 0},0.{50 + k}" for k in range(40)]
        (folder / f"part-{part}.csv").write_text("\n".join([header, *rows, ""]))
    command("evaluate", folder, "--resamples", 0, "--json", tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["metrics"]["acc"] == 0.9
    assert "80 predictions" in capsys.readouterr().out
    command("calibrate", folder, "--method", "isotonic", "--out", tmp_path / "c.csv")
    assert len((tmp_path / "c.csv").read_text().splitlines()) == 81
    before = (folder / "part-0.csv").read_bytes()
    command("calibrate", folder, "--method", "isotonic", "--out", folder / "part-0.csv", code=2)
    assert (folder / "part-0.csv").read_bytes() == before
    capsys.readouterr()
    command("evaluate", *sorted(folder.iterdir()), "--resamples", 0)
    assert f"confrank evaluate {folder} evaluates them together" in " ".join(capsys.readouterr().out.split())

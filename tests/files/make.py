"""Write the files of this folder: `python tests/files/make.py`. What each holds is known before it is written.

A `File` has the arrays that it was made from (`truth`), the flag with which it can be read to them, and what the
error says if it is read without. The test computes the metrics from `truth` with scikit-learn and plain loops.
"""

import csv
import gzip
import io
import json
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from safetensors.numpy import save

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))
from packing import packed as compressed  # noqa: E402

NAMES = ["cat", "dog", "owl"]
# Without its flag a file is read, and ranked right, but its scores are not taken for probabilities.
RANKED = "only ranked"


@dataclass(frozen=True)
class File:
    """`flags` lead to the truth. `refused` is what the error says without them (with them, if there is no truth)."""

    name: str
    holds: str
    content: bytes
    truth: dict | None
    flags: tuple[str, ...] = ()
    refused: str | None = None


def as_csv(header, rows, separator=",", end="\n"):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator=end)
    writer.writerows([header, *rows])
    return text.getvalue()


def columns_csv(header, *columns):
    """Columns [n], or several of them in a table [n, K]."""
    rows = zip(*(column if np.ndim(column) == 2 else [[cell] for cell in column] for column in columns), strict=True)
    return as_csv(header, [[cell for part in row for cell in part] for row in rows])


def as_npz(**arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def as_npy(array):
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def as_parquet(table):
    content = io.BytesIO()
    parquet.write_table(table, content)
    return content.getvalue()


def as_arrow(table, stream=False, **options):
    content = io.BytesIO()
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(content, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
        file.write_table(table)
    return content.getvalue()


def packed(text):
    return gzip.compress(text.encode(), mtime=0)


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def softmax(logits):
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def probabilities_of(rng, n, classes, digits=4):
    """Rows that sum to 1 exactly in decimals, with a unique largest value, and labels that it often predicts."""
    unit = 10**digits
    logits = rng.normal(size=(n, classes)) * rng.uniform(0.5, 2.5, size=(n, 1))
    parts = np.floor(softmax(logits) * unit).astype(np.int64)
    parts[np.arange(n), parts.argmax(axis=1)] += unit - parts.sum(axis=1)
    probabilities = parts / unit
    drawn = np.array([rng.choice(classes, p=row / row.sum()) for row in probabilities])
    return probabilities, drawn


def of_table(probabilities, label):
    predicted = probabilities.argmax(axis=1)
    return {
        "correct": predicted == label,
        "confidence": probabilities.max(axis=1),
        "probabilities": probabilities,
        "label": label,
    }


def of_confidence(confidence, correct, calibrated=True):
    return {"correct": np.asarray(correct, dtype=bool), "confidence": confidence, "calibrated": calibrated}


def files():
    rng = np.random.default_rng(17)
    table, label = probabilities_of(rng, 60, 3)
    digits, digit = probabilities_of(rng, 50, 10, 5)
    logits = np.round(rng.normal(size=(60, 3)) * 3, 3)
    logit_label = np.array([rng.choice(3, p=row) for row in softmax(logits)])
    binary, truth01 = probabilities_of(rng, 80, 2)
    p1, guess01 = binary[:, 1], binary.argmax(axis=1)
    of_animals, of_digits, of_binary = of_table(table, label), of_table(digits, digit), of_table(binary, truth01)
    of_logits = of_table(softmax(logits), logit_label)
    predicted, top = table.argmax(axis=1), table.max(axis=1)
    of_top = of_confidence(top, predicted == label)
    word, guess = [NAMES[k] for k in label], [NAMES[k] for k in predicted]
    right = predicted == label
    n = len(label)
    ids = rng.permutation(1000)[:n]
    percent = np.round(table * 100, 2)
    sure = np.sort(rng.integers(5, 101, size=40))
    answer, gold = rng.choice(list("ABCD"), 40), rng.choice(list("ABCD"), 40)
    gold = np.where(rng.uniform(size=40) < sure / 110, answer, gold)
    of_answers = of_confidence(sure / 100, answer == gold)
    result = []

    def add(name, holds, content, truth, flags=(), refused=None):
        """By default, the error without flags names the first of them."""
        content = content if isinstance(content, bytes) else content.encode()
        result.append(File(name, holds, content, truth, tuple(flags), refused or next(iter(flags), None)))

    def refuse(name, holds, content, remedy):
        """A file that no flag can read."""
        add(name, holds, content, None, refused=remedy)

    def skip(name, holds, content, truth=None):
        """A file with two rows to leave out."""
        add(name, holds, content, truth or of_rest, ["--skip-missing"])

    triple = list(zip(word, guess, top, strict=True))
    header = ["label", "prediction", "confidence"]
    plain = as_csv(header, triple)
    named = [(w, *row) for w, row in zip(word, table, strict=True)]
    class_header = ["label", *(f"probability_{name}" for name in NAMES)]

    # Names and forms.
    add("probability_names.csv", "a probability column per class", as_csv(class_header, named), of_animals)
    add("p_names.csv", "the prefix p_", as_csv(["label", "p_cat", "p_dog", "p_owl"], named), of_animals)
    add(
        "prob_0_to_9.csv",
        "prob_0 to prob_9",
        columns_csv(["label", *(f"prob_{k}" for k in range(10))], digit, digits),
        of_digits,
    )
    add(
        "logit_0_to_2.csv",
        "logit_0 to logit_2",
        columns_csv(["label", "logit_0", "logit_1", "logit_2"], logit_label, logits),
        of_logits,
    )
    add("bare_probabilities.csv", "class names as columns", as_csv(["label", *NAMES], named), of_animals)
    logit_word = [NAMES[k] for k in logit_label]
    add(
        "bare_logits.csv",
        "class names as columns of logits",
        columns_csv(["label", *NAMES], logit_word, logits),
        of_logits,
    )
    classes = "probability:cat=class_cat,probability:dog=class_dog,probability:owl=class_owl"
    add(
        "class_names_prefixed.csv",
        "class_cat, class_dog, class_owl",
        as_csv(["label", "class_cat", "class_dog", "class_owl"], named),
        of_animals,
        ["--columns", classes],
    )
    add("label_prediction_confidence.csv", "names, and the confidence of the prediction", plain, of_top)
    add(
        "confidence_correct.csv",
        "confidence and correct",
        columns_csv(["confidence", "correct"], top, right.astype(int)),
        of_top,
    )
    add(
        "upper_case_header.csv",
        "names of columns in other cases and with spaces",
        plain.replace("label,prediction,confidence", "Label , PREDICTION,Confidence "),
        of_top,
    )
    add(
        "extra_columns.csv",
        "text, date and model, which are ignored",
        as_csv(
            [*header, "text", "date", "model"],
            [(*row, f"say {k}", "2024-05-01", "m1") for k, row in enumerate(triple)],
        ),
        of_top,
    )

    # Numbers as people write them.
    add(
        "percent_bare.csv",
        "percentages in bare class columns",
        columns_csv(["label", *NAMES], word, percent),
        of_animals,
        ["--scale", "100"],
    )
    add(
        "percent_named.csv",
        "percentages in probability columns",
        columns_csv(class_header, word, percent),
        of_animals,
        ["--scale", "100"],
    )
    signed = [(w, *(f"{value:.2f}%" for value in row)) for w, row in zip(word, percent, strict=True)]
    add("percent_signs.csv", "cells such as 83.12%", as_csv(class_header, signed), of_animals)
    with_spaces = "label, prediction, confidence\n" + "".join(
        f"{a}, {b}, {str(c).lstrip('0')}\n" for a, b, c in triple
    )
    add("spaces_after_commas.csv", "cat, cat, .9", with_spaces, of_top)
    add(
        "spaces_and_quotes.csv",
        "quoted cells after spaces",
        "label, prediction, confidence\n" + "".join(f'"{a}", "{b}", {c}\n' for a, b, c in triple),
        of_top,
    )
    comma = as_csv(
        class_header,
        [(w, *(str(value).replace(".", ",") for value in row)) for w, row in zip(word, table, strict=True)],
        ";",
    )
    add("decimal_commas.csv", "semicolons, and commas in numbers", comma, of_animals)
    add("semicolons.csv", "semicolons, and points in numbers", as_csv(class_header, named, ";"), of_animals)
    add("bars.csv", "bars between cells", as_csv(class_header, named, "|"), of_animals)
    add(
        "excel_sep_line.csv",
        "a first line sep=; as for Excel",
        "sep=;\n" + as_csv(class_header, named, ";"),
        of_animals,
    )
    small = np.array([[1 - 2e-05 - 3e-07 * k, 2e-05, 3e-07 * k] for k in range(1, 21)])
    small_label = np.arange(20) % 3
    add(
        "scientific.csv",
        "numbers such as 3e-07",
        columns_csv(["label", "prob_0", "prob_1", "prob_2"], small_label, small),
        of_table(small, small_label),
    )
    add(
        "energy.csv",
        "scores outside [0, 1], as of an energy",
        columns_csv(["confidence", "correct"], np.round(-np.log(1 - top + 0.001) * 5 - 9, 6), right.astype(int)),
        of_confidence(np.round(-np.log(1 - top + 1e-3) * 5 - 9, 6), right, calibrated=False),
    )
    refuse(
        "one_vs_rest.csv",
        "one-vs-rest scores in [0, 1] that do not sum to 1",
        columns_csv(["label", *NAMES], word, np.round(table * [0.9, 0.5, 0.8], 4)),
        "give the probabilities of all classes",
    )

    # Binary files.
    guesses = list(zip(truth01, guess01, p1, strict=True))
    add(
        "binary_score_of_class_1.csv",
        "label, prediction, score with score = P(class 1)",
        as_csv(["label", "prediction", "score"], guesses),
        of_binary,
        ["--positive", "1"],
    )
    spam = ["spam" if k else "ham" for k in truth01], ["spam" if k else "ham" for k in guess01]
    add(
        "binary_score_of_spam.csv",
        "the same with names",
        columns_csv(["label", "prediction", "score"], *spam, p1),
        of_binary,
        ["--positive", "spam"],
    )
    add(
        "binary_score_confidence.csv",
        "the score of the predicted class",
        columns_csv(["label", "prediction", "score"], truth01, guess01, binary.max(axis=1)),
        of_confidence(binary.max(axis=1), guess01 == truth01),
    )
    add(
        "binary_label_score.csv",
        "label and score without prediction",
        columns_csv(["label", "score"], truth01, p1),
        of_binary,
        ["--positive", "1"],
    )
    add(
        "y_true_y_pred_y_prob.csv",
        "names of scikit-learn, y_prob = P(class 1)",
        as_csv(["y_true", "y_pred", "y_prob"], guesses),
        of_binary,
    )
    add("y_true_y_prob.csv", "y_true and y_prob", columns_csv(["y_true", "y_prob"], truth01, p1), of_binary)
    add(
        "binary_true_false.csv",
        "labels True and False with P(True)",
        columns_csv(["label", "y_prob"], truth01.astype(bool), p1),
        of_binary,
    )
    add(
        "y_prob_of_three_classes.csv",
        "y_prob = the predicted class, of three",
        columns_csv(["y_true", "y_pred", "y_prob"], label, predicted, top),
        of_top,
        ["--columns", "confidence=y_prob"],
    )

    # What is missing.
    def without(rows, column, missing):
        return [
            tuple("" if k == column and row in missing else cell for k, cell in enumerate(cells))
            for row, cells in enumerate(rows)
        ]

    rest = np.array([row not in (7, 21) for row in range(n)])
    of_rest = of_confidence(top[rest], right[rest])
    skip("empty_labels.csv", "two labels missing", as_csv(header, without(triple, 0, (7, 21))))
    skip("empty_predictions.csv", "two predictions missing", as_csv(header, without(triple, 1, (7, 21))))
    skip("empty_confidences.csv", "two confidences missing", as_csv(header, without(triple, 2, (7, 21))))
    for name, missing in (("none", "None"), ("nan", "nan"), ("null", "NULL"), ("na", "N/A")):
        rows = [(missing if row in (7, 21) else a, b, c) for row, (a, b, c) in enumerate(triple)]
        skip(f"{name}_labels.csv", f"the word {missing} for two labels", as_csv(header, rows))
    rows = [(a, b, "nan" if row in (7, 21) else c) for row, (a, b, c) in enumerate(triple)]
    skip("nan_confidences.csv", "nan for two confidences", as_csv(header, rows))
    rows = [(a, *(("",) * 3 if row in (7, 21) else cells)) for row, (a, *cells) in enumerate(named)]
    skip(
        "empty_probabilities.csv",
        "two rows without probabilities",
        as_csv(class_header, rows),
        of_table(table[rest], label[rest]),
    )

    # Pipelines and language models.
    pipeline = [{"label": g, "score": float(s), "gold": w} for w, g, s in triple]
    add("pipeline.json", "a transformers pipeline with gold labels, as a list", json.dumps(pipeline), of_top)
    add("pipeline.jsonl", "the same as JSON Lines", lines(pipeline), of_top)
    add(
        "pipeline_with_text.jsonl",
        "the same with the text",
        lines([{"text": f'line {k}: say, "{k}"', **one} for k, one in enumerate(pipeline)]),
        of_top,
    )
    nested = [
        [{"label": name, "score": float(value)} for name, value in zip(NAMES, row, strict=True)] for row in table
    ]
    refuse(
        "pipeline_all_scores.json",
        "all scores of a pipeline, nested, without gold",
        json.dumps(nested),
        "write rows such as",
    )
    llm = list(zip(range(40), answer, gold, sure, strict=True))
    add(
        "llm_0_to_100.csv",
        "question_id, answer, gold, confidence from 0 to 100",
        as_csv(["question_id", "answer", "gold", "confidence"], llm),
        of_answers,
        ["--scale", "100"],
    )
    add(
        "llm_percent.csv",
        "confidence such as 83%",
        as_csv(["question_id", "answer", "gold", "confidence"], [(*row[:3], f"{row[3]}%") for row in llm]),
        of_answers,
    )
    logged = np.round(np.log(sure / 100), 6) - 0.0
    of_logged = of_confidence(np.exp(logged), answer == gold)
    add(
        "llm_log_probability.csv",
        "confidence as log-probability",
        columns_csv(["question_id", "answer", "gold", "confidence"], range(40), answer, gold, logged),
        of_logged,
        ["--scale", "log"],
        RANKED,
    )
    add(
        "llm_other_names.csv",
        "qid, model_answer, reference, certainty",
        as_csv(["qid", "model_answer", "reference", "certainty"], [(*row[:3], row[3] / 100) for row in llm]),
        of_answers,
        ["--columns", "label=reference,prediction=model_answer,confidence=certainty"],
    )
    add(
        "llm_judged.jsonl",
        "confidence and correct as JSON booleans",
        lines([{"id": f"q{k}", "confidence": float(s) / 100, "correct": bool(a == g)} for k, a, g, s in llm]),
        of_answers,
    )

    # Two files.
    order = rng.permutation(n)
    solution = as_csv(["id", "label"], [(ids[k], word[k]) for k in order])
    refuse("solution.csv", "the labels for the submissions, in another order", solution, "say what they are")
    short = as_csv(["id", "label"], [(ids[k], word[k]) for k in order[1:]])
    refuse("solution_short.csv", "the same without one row", short, "say what they are")
    submitted = columns_csv(["id", "prediction", "confidence"], ids, guess, top)
    add("submission.csv", "a submission without labels", submitted, of_top, ["--truth", "solution.csv"])
    add(
        "submission_missing_key.csv",
        "the same, one of whose keys the labels lack",
        submitted,
        None,
        ["--truth", "solution_short.csv"],
        str(ids[order[0]]),
    )
    add(
        "submission_probabilities.csv",
        "a submission with a column per class",
        columns_csv(["id", *NAMES], ids, table),
        of_animals,
        ["--truth", "solution.csv"],
    )
    pairs01 = [(f"x{k}", y) for k, y in enumerate(truth01)]
    refuse("solution_binary.csv", "labels 0 and 1", as_csv(["id", "target"], reversed(pairs01)), "say what they are")
    add(
        "submission_binary.csv",
        "a submission with the probability of class 1 as target",
        as_csv(["id", "target"], [(f"x{k}", p) for k, p in enumerate(p1)]),
        of_binary,
        ["--truth", "solution_binary.csv"],
    )

    # Formats.
    add("table.tsv", "tabs", as_csv(class_header, named, "\t"), of_animals)
    add("table.csv.gz", "CSV packed with gzip", packed(as_csv(class_header, named)), of_animals)
    add("table.tsv.gz", "TSV packed with gzip", packed(as_csv(class_header, named, "\t")), of_animals)
    add("pipeline.jsonl.gz", "JSON Lines packed with gzip", packed(lines(pipeline)), of_top)
    refuse("truncated.csv.gz", "a gzip file cut off", packed(plain)[:-40], "an intact compressed file")
    add("utf16.csv", "UTF-16 with its mark", plain.encode("utf-16"), of_top)
    refuse("utf16_without_mark.csv", "UTF-16 without a mark", plain.encode("utf-16-le"), "save it as UTF-8")
    add("bom.csv", "UTF-8 with a byte order mark", plain.encode("utf-8-sig"), of_top)
    add("crlf.csv", "lines that end in CR LF", plain.replace("\n", "\r\n"), of_top)
    refuse("latin1.csv", "names in Latin-1", plain.replace("cat", "chaté").encode("latin-1"), "save it as UTF-8")
    add("accents.csv", "names in UTF-8", plain.replace("cat", "chaté"), of_top)
    add(
        "quoted.csv",
        "names with commas and quotes, in quotes",
        as_csv(header, [(a.replace("cat", 'cat, "wild"'), b.replace("cat", 'cat, "wild"'), c) for a, b, c in triple]),
        of_top,
    )
    add("trailing_commas.csv", "a comma at the end of each line", plain.replace("\n", ",\n"), of_top)
    add("empty_lines.csv", "empty lines between rows", plain.replace("\n", "\n\n"), of_top)
    add(
        "pandas_index.csv",
        "the unnamed index column of pandas",
        as_csv(["", *header], [(k, *row) for k, row in enumerate(triple)]),
        of_top,
    )
    objects = [{"label": w, "probabilities": row.tolist()} for w, row in zip(label.tolist(), table, strict=True)]
    add("objects.json", "a list of objects with a list of probabilities", json.dumps(objects), of_animals)
    columns = {"label": word, "prediction": guess, "confidence": top.tolist()}
    add("columns.json", "an object of columns", json.dumps(columns), of_top)
    add(
        "pandas_default.json",
        "an object of columns by row, as pandas writes by default",
        json.dumps({key: {str(k): value for k, value in enumerate(values)} for key, values in columns.items()}),
        of_top,
    )
    add(
        "pandas_split.json",
        "pandas' orient='split'",
        json.dumps({"columns": header, "index": list(range(n)), "data": [list(row) for row in triple]}),
        of_top,
    )
    skip(
        "nan.json",
        "NaN for two confidences",
        json.dumps(
            [{**one, "score": float("nan") if k in (7, 21) else one["score"]} for k, one in enumerate(pipeline)]
        ),
    )
    skip(
        "null.json",
        "null for two labels",
        json.dumps([{**one, "gold": None if k in (7, 21) else one["gold"]} for k, one in enumerate(pipeline)]),
    )
    refuse("nested.json", "5,000 brackets", "[" * 5000 + "]" * 5000, "nested too deeply")
    frame = pa.table({"label": word, "prediction": guess, "confidence": top})
    add("plain.parquet", "columns of text and numbers", as_parquet(frame), of_top)
    add(
        "pandas_index.parquet",
        "the index column of pandas",
        as_parquet(frame.append_column("__index_level_0__", pa.array(range(n)))),
        of_top,
    )
    add(
        "pandas_index_of_classes.parquet",
        "the same next to bare classes",
        as_parquet(
            pa.table(
                {"label": word, **{name: table[:, k] for k, name in enumerate(NAMES)}, "__index_level_0__": range(n)}
            )
        ),
        of_animals,
    )
    add(
        "lists.parquet",
        "a list of probabilities in each row",
        as_parquet(pa.table({"label": label, "probabilities": list(table)})),
        of_animals,
    )
    add(
        "categories.parquet",
        "categories as labels",
        as_parquet(
            pa.table(
                {
                    "label": pa.array(word).dictionary_encode(),
                    "prediction": pa.array(guess).dictionary_encode(),
                    "confidence": top,
                }
            )
        ),
        of_top,
    )
    skip(
        "nulls.parquet",
        "null for two labels",
        as_parquet(
            pa.table(
                {
                    "label": [None if k in (7, 21) else w for k, w in enumerate(word)],
                    "prediction": guess,
                    "confidence": top,
                }
            )
        ),
    )
    add(
        "float16.npz",
        "logits in half precision",
        as_npz(label=logit_label, logits=logits.astype(np.float16)),
        of_table(softmax(logits.astype(np.float16).astype(np.float64)), logit_label),
    )
    add("scikit_learn.npz", "y_true and y_prob [n, K]", as_npz(y_true=label, y_prob=table), of_animals)
    add(
        "unnamed_arrays.npz",
        "arr_0 and arr_1",
        as_npz(arr_0=label, arr_1=table),
        of_animals,
        ["--columns", "label=arr_0,probabilities=arr_1"],
    )
    refuse(
        "objects.npz",
        "Python objects",
        as_npz(label=np.array(word, dtype=object), probabilities=table),
        "save text as np.array",
    )
    add("text.npz", "names as text", as_npz(label=np.array(word), prediction=np.array(guess), confidence=top), of_top)
    fields = np.array(list(zip(top, right, strict=True)), dtype=[("confidence", "<f8"), ("correct", "?")])
    add("structured.npy", "a structured array", as_npy(fields), of_top)
    add("two_columns.npy", "rows of confidence and correct", as_npy(np.stack([top, right], axis=1)), of_top)
    refuse("probabilities_only.npy", "probabilities without labels", as_npy(table), "or with --truth FILE")
    add("logits.safetensors", "logits and labels", save({"logits": logits, "label": logit_label}), of_logits)
    huge = json.dumps({"label": {"dtype": "I64", "shape": [2**40], "data_offsets": [0, 2**43]}}).encode()
    refuse("huge.safetensors", "a shape that needs 8 TB", struct.pack("<Q", len(huge)) + huge, "safetensors")

    # What frameworks and services write.
    tidy = columns_csv(["truth", ".pred_class", *(f".pred_{name}" for name in NAMES)], word, guess, table)
    add("tidymodels.csv", "truth, .pred_class and .pred_cat, as tidymodels in R calls them", tidy, of_animals)
    add(
        "h2o.csv",
        "predict and class names, as H2O calls them",
        as_csv(["predict", *class_header[:1], *NAMES], zip(guess, word, *table.T, strict=True)),
        of_animals,
    )
    add(
        "r_write_csv.csv",
        "quoted row names without a header, as R writes them",
        '"","obs","pred","confidence"\n'
        + "".join(f'"{k}","{a}","{b}",{c}\n' for k, (a, b, c) in enumerate(triple, 1)),
        of_top,
    )
    add("keras.npz", "one-hot y_true and y_pred [n, K]", as_npz(y_true=np.eye(3)[label], y_pred=table), of_animals)
    add(
        "trainer.npz",
        "predictions [n, K] and label_ids, as of a transformers Trainer",
        as_npz(predictions=logits, label_ids=logit_label),
        of_logits,
    )
    margin = np.round(np.log((p1 + 1e-3) / (1.001 - p1)), 6)
    of_margin = of_table(softmax(np.stack([np.zeros(len(p1)), margin], axis=1)), truth01)
    add("margins.npz", "logits [n] of class 1", as_npz(logits=margin, label=truth01), of_margin)
    samples = [
        {
            "doc_id": k,
            "doc": {"question": "?"},
            "target": str(right),
            "acc": float(row.argmax() == right),
            "filtered_resps": [[str(value), "False"] for value in row],
        }
        for k, (right, row) in enumerate(zip(logit_label, logits, strict=True))
    ]
    refuse(
        "samples_choices.jsonl",
        "log-likelihoods of choices, as lm-evaluation-harness logs them",
        lines(samples),
        "write rows such as",
    )
    judged = [
        {"id": k, "judge": {"confidence": float(c), "correct": bool(r)}}
        for k, (c, r) in enumerate(zip(top, right, strict=True))
    ]
    add(
        "judged_nested.jsonl",
        "confidence and correct in an object",
        lines(judged),
        of_top,
        ["--columns", "confidence=judge.confidence,correct=judge.correct"],
    )
    add(
        "rows_by_name.json",
        "an object with an object for each file",
        json.dumps({f"{k}.png": dict(zip(header, row, strict=True)) for k, row in enumerate(triple)}),
        of_top,
    )
    refuse(
        "confidence_words.jsonl",
        "high and low as confidence",
        lines(
            [
                {"confidence": "high" if c > 0.7 else "low", "correct": bool(r)}
                for c, r in zip(top, right, strict=True)
            ]
        ),
        "write numbers",
    )
    refuse(
        "partial_credit.jsonl",
        "grades of 0.5",
        lines([{"confidence": float(c), "correct": 0.5 if r else 0} for c, r in zip(top, right, strict=True)]),
        "counts as right",
    )
    ways = {"bz2": "packed with bzip2", "xz": "packed with xz", "zst": "packed with zstd", "zip": "in a zip archive"}
    for ending, way in ways.items():
        name = f"table.csv.{ending}"
        content = compressed(name, as_csv(class_header, named).encode())
        if ending in ("xz", "zip"):
            refuse(name, f"CSV {way}", content, "unpack it, or pack it with gzip")
        else:
            add(name, f"CSV {way}", content, of_animals)
    add("plain.feather", "the same columns as pandas writes them", as_arrow(frame, compression="lz4"), of_top)
    add(
        "views.arrow",
        "text as Polars writes it",
        as_arrow(frame.set_column(0, "label", frame["label"].cast(pa.string_view())), compression="zstd"),
        of_top,
    )
    add(
        "dataset.arrow",
        "a stream with lists, as datasets writes it",
        as_arrow(
            pa.table({"label": label, "probabilities": pa.array(list(table), pa.list_(pa.float64(), 3))}), stream=True
        ),
        of_animals,
    )

    # Classes and their numbers.
    add(
        "classes_from_1.csv",
        "labels and columns from 1",
        columns_csv(["label", "prob_1", "prob_2", "prob_3"], label + 1, table),
        of_animals,
    )
    refuse(
        "labels_from_1.csv",
        "labels from 1, columns from 0",
        columns_csv(["label", "prob_0", "prob_1", "prob_2"], label + 1, table),
        "subtract 1",
    )
    refuse(
        "labels_from_1.npz",
        "labels from 1 with an array of probabilities",
        as_npz(label=label + 1, probabilities=table),
        "subtract 1",
    )
    add(
        "columns_shuffled.csv",
        "prob_2, prob_0, prob_1",
        columns_csv(["label", "prob_2", "prob_0", "prob_1"], label, table[:, [2, 0, 1]]),
        of_animals,
    )
    add(
        "names_shuffled.csv",
        "class columns in another order than the labels",
        columns_csv(["label", "owl", "cat", "dog"], word, table[:, [2, 0, 1]]),
        of_animals,
    )
    add(
        "float_labels.csv",
        "labels such as 2.0",
        columns_csv(["label", "prob_0", "prob_1", "prob_2"], label.astype(float), table),
        of_animals,
    )
    cells = [(w, str(row.tolist())) for w, row in zip(label, table, strict=True)]
    refuse(
        "lists_as_text.csv",
        "lists of probabilities as text",
        as_csv(["label", "probabilities"], cells),
        "name all class columns probability_NAME",
    )
    refuse(
        "one_hot.csv",
        "one-hot labels",
        columns_csv(
            ["is_cat", "is_dog", "is_owl", "prediction", "confidence"], np.eye(3, dtype=int)[label], guess, top
        ),
        "--columns",
    )

    # Columns that are no classes, and keys.
    choose = ["--columns", "probability:cat=cat,probability:dog=dog,probability:owl=owl"]
    add(
        "fold_among_classes.csv",
        "the column fold among bare classes",
        columns_csv(["label", *NAMES, "fold"], word, table, np.arange(n) % 5),
        of_animals,
        choose,
        "fold",
    )
    choose_logits = ["--columns", "logit:cat=cat,logit:dog=dog,logit:owl=owl"]
    add(
        "constant_among_classes.csv",
        "the constant column seed among bare classes of logits",
        columns_csv(["label", *NAMES, "seed"], logit_word, logits, [1] * n),
        of_logits,
        choose_logits,
        "seed",
    )
    far = [2**63 + 5 + int(k) for k in ids]
    add("uint64_ids.csv", "ids above 2^63", columns_csv(["id", *header], far, triple), of_top)
    add(
        "uint64_ids.parquet",
        "ids above 2^63",
        as_parquet(frame.append_column("id", pa.array(far, pa.uint64()))),
        of_top,
    )
    refuse(
        "uint64_index.npz",
        "an index above 2^63",
        as_npz(index=np.array(far, np.uint64), confidence=top, correct=right),
        "below 2**63 in index",
    )
    refuse(
        "uint64_labels.npz",
        "labels above 2^63",
        as_npz(label=np.array(far, np.uint64), prediction=np.array(far, np.uint64), confidence=top),
        "below 2**63 in label",
    )
    refuse(
        "repeated_column.csv",
        "two columns confidence",
        as_csv([*header, "confidence"], [(*row, row[2]) for row in triple]),
        "rename one of them",
    )
    both = as_csv(["target", "label", "prediction", "confidence"], [(w, w, g, c) for w, g, c in triple])
    add("label_and_target.csv", "two columns that may be labels", both, of_top, ["--columns", "label=target"])
    twice = [(ids[0] if k == 1 else key, *row) for k, (key, row) in enumerate(zip(ids, triple, strict=True))]
    add("one_sample_twice.csv", "one id twice", as_csv(["id", *header], twice), of_top)
    truths = ["TRUE" if k else "FALSE" for k in right]
    add("true_false.csv", "TRUE and FALSE as correct", columns_csv(["correct", "confidence"], truths, top), of_top)
    add(
        "yes_no.csv",
        "yes and no as correct",
        columns_csv(["correct", "confidence"], ["yes" if k else "no" for k in right], top),
        of_top,
    )

    # Not predictions.
    refuse("header_only.csv", "no rows", "label,prediction,confidence\n", "rows")
    refuse("no_header.csv", "rows without a header", plain.split("\n", 1)[1], "add a line with the names")
    refuse(
        "no_header_numbers.csv",
        "numbers without a header",
        columns_csv([top[0], int(right[0])], top[1:], right[1:].astype(int)),
        "add a line with the names",
    )
    refuse("empty.csv", "nothing", b"", "empty")
    refuse("short_row.csv", "a row that lacks a cell", plain.replace(f",{top[5]}\n", "\n", 1), "in line 7")
    refuse("table.txt", "a table with another ending", plain, "ending in")
    refuse("table.xlsx", "a workbook of Excel", plain, "save the sheet as CSV")
    refuse("csv_named.npz", "CSV under the name of an archive", plain, "npz")
    refuse(
        "npz_named.csv",
        "an archive under the name of a CSV",
        as_npz(confidence=top, correct=right),
        "looks like a binary file",
    )
    return result


def readme(entries):
    """The table of what each file holds."""
    intro = (
        "# Files of predictions as people have them\n\n"
        "Written by `make.py` from known arrays. `tests/test_corpus.py` reads each file and compares its metrics\n"
        "with those of the arrays. *Without a flag*: what the error says; if empty, the file is read.\n\n"
        "| file | holds | without a flag | read with |\n|---|---|---|---|\n"
    )
    rows = []
    for file in entries:
        error = {None: "", RANKED: RANKED}.get(file.refused, f"refused: {file.refused}")
        flags = f"`{' '.join(file.flags)}`" if file.flags and file.truth else "" if file.truth else "never"
        rows.append(f"| `{file.name}` | {file.holds.replace('|', '&#124;')} | {error} | {flags} |\n")
    return intro + "".join(rows)


if __name__ == "__main__":
    for file in files():
        (FOLDER / file.name).write_bytes(file.content)
    (FOLDER / "README.md").write_text(readme(files()))

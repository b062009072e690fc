"""From predictions to decisions: scores, thresholds, sets, selections, and policies applied and watched."""

import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from confrank.cli.options import (
    GROUPS,
    Column,
    Columns,
    Coverage,
    CsvFile,
    Folds,
    InFile,
    Natural,
    Number,
    Output,
    Page,
    PolicyFile,
    Reading,
    ReadingNew,
    Share,
    Whole,
    command,
    predictions_path,
)
from confrank.cli.terminal import make_console, say, working
from confrank.errors import InputError, about, counted, flag_of, named, sentence

if TYPE_CHECKING:
    from confrank.decisions.policy import Policy
    from confrank.decisions.policy_parts import Part as PolicyPart
    from confrank.decisions.rows import UsedRows
    from confrank.metrics import Samples
    from confrank.predictions import Predictions

BROKEN = 3
FOLDS = 5
CLASS = "predicted class"


@Parameter(name="*", group=GROUPS["output"])
@dataclass(frozen=True)
class Target(Output):
    """Where the result goes: numbers, and a part of a policy.

    Args:
        policy: add the result to this policy (.json); create it if it does not exist
        replace: replace the part that the policy already has, and drop those that depend on it
    """

    policy: PolicyFile | None = None
    replace: bool = False

    def check(self, file: str, reading: Reading, *others: Path | None, inputs: list[str] | None = None) -> None:
        """Raise if a file to write cannot be written, or is read by the command."""
        from confrank.runs.outputs import keep_inputs

        if self.replace and self.policy is None:
            raise ValueError("expected --policy with --replace, but got none")
        keep_inputs([file, predictions_path(file), reading.truth, *(inputs or [])], self.json, *others, self.policy)

    def open(self, file: str, predictions: "Predictions") -> "Policy | None":
        """The policy of --policy, loaded and checked against the predictions, or a new one; None without the flag."""
        from confrank.decisions.policy import Policy

        if self.policy is None or not self.policy.exists():
            return None if self.policy is None else Policy.of(predictions)
        policy = Policy.load(self.policy)
        with about(file):
            policy.matched(predictions)
        if policy.input.class_names and predictions.class_names and predictions.class_names != policy.classes:
            raise InputError(
                f"{file}: expected the classes in the order of the policy, {named(policy.classes or [])}, but"
                f" got {named(predictions.class_names or [])}",
                "reorder the columns",
            )
        return policy

    def unseen(
        self, policy: "Policy", source: tuple[str, "Predictions", "Samples"], seed: int
    ) -> tuple["Samples", "UsedRows"]:
        """The samples as the policy ranks them, those that none of its fitted parts saw, and the record of rows."""
        file, predictions, samples = source
        index, rows = policy.usable(predictions, "promise", file=file, seed=seed)
        return ranked_by(policy, predictions, samples).select(index), rows

    def save(self, policy: "Policy", part: "PolicyPart") -> list[str]:
        """Add a part to the policy and write it; lines that say so."""
        from confrank.decisions.policy_words import added_lines

        assert self.policy is not None
        return added_lines(policy, part, policy.add(part, self.policy, replace=self.replace), self.policy)


@Parameter(name="*", group=GROUPS["output"])
@dataclass(frozen=True)
class DesignTarget(Target):
    """Where a part that is fitted or chosen goes.

    Args:
        rows: rows to fit or choose on: design, half of the file, so that a guarantee can use the rest; or all
            (default: design)
    """

    rows: Literal["design", "all"] | None = None

    def check(self, file: str, reading: Reading, *others: Path | None, inputs: list[str] | None = None) -> None:
        if self.rows is not None and self.policy is None:
            raise ValueError("expected --policy with --rows, but got none; without a policy all rows are used")
        super().check(file, reading, *others, inputs=inputs)


@Parameter(name="*", group=GROUPS["new rows"])
@dataclass(frozen=True)
class New:
    """New rows to answer.

    Args:
        new: new predictions, with or without labels
        out: file to write for the new rows (.csv)
    """

    new: InFile | None = None
    out: CsvFile | None = None

    def check(self) -> list[str]:
        """What is read; an error unless both flags are given or none."""
        if (self.new is None) != (self.out is None):
            given, missing = ("--new", "--out") if self.out is None else ("--out", "--new")
            raise ValueError(f"expected {missing} with {given}, but got none")
        return [] if self.new is None else [str(predictions_path(self.new))]


def ranked_by(policy: "Policy", predictions: "Predictions", samples: "Samples") -> "Samples":
    """The samples with the predictions and the confidence of the policy."""
    prediction, confidence = policy.predicted(predictions)
    return replace(samples, confidence=confidence, prediction=prediction, correct=policy.correct(predictions))


def print_read(predictions: "Predictions", samples: "Samples", notes: list[str] | None = None) -> None:
    """Print what was read, before anything can fail, and what a guarantee assumes of it."""
    print("\n".join([f"read {predictions.describe()}", *samples.notes, *(notes or [])]))


def one_column(by: list[str] | None) -> str | None:
    """The one column of --by."""
    if by is not None and len(by) > 1:
        got = ",".join(by)
        raise ValueError(f"expected one column for --by, but got {got!r}; combine the columns into one in the file")
    return None if by is None else by[0]


@command("decide", "how-to/scores.md", "confrank scores validation.npz --policy policy.json")
def scores(
    file: str,
    /,
    *,
    seed: Natural = 0,
    resamples: Whole | None = None,
    output: DesignTarget = DesignTarget(),  # noqa: B008
    reading: Reading = Reading(),  # noqa: B008
) -> None:
    """Compare confidence scores, and choose the one to rank by.

    Args:
        file: predictions with logits or probabilities of all classes, or a run folder
        seed: seed of the split into halves, and of the resamples
        resamples: bootstrap resamples, 100 or more; 0 for no intervals per score (default: depends on the rows)
    """
    from confrank.analysis import check_resamples
    from confrank.decisions.policy import ScorePart
    from confrank.report import scores as words
    from confrank.scores.choice import chosen
    from confrank.scores.table import table_of

    check_resamples(resamples)
    output.check(file, reading)
    source = reading.source(file)
    predictions, samples = source.predictions, source.samples
    if predictions.table is None:
        raise ValueError(
            f"expected logits or probabilities of all classes to compute scores from, but {file} has"
            f" {predictions.describe()}"
        )
    policy = output.open(file, predictions)
    with working("fitting and comparing the scores") as advance:
        index, correct, rows = None, samples.correct, None
        table = table_of(predictions.logits, predictions.probabilities)
        if policy is not None:
            every = output.rows == "all"
            index, rows = policy.usable(predictions, "design", file=file, seed=seed, every=every)
            table, correct = table_of(**policy.table(predictions)), policy.correct(predictions)
        choice = chosen(table, correct, seed, resamples, index, advance)
    numbers, saved = words.choice_as_dict(choice), list[str]()
    if policy is not None:
        names = ("candidate", "difference", "num_chosen_on", "num_judged_on")
        settings = {name: numbers[name] for name in names}
        saved = output.save(policy, ScorePart(choice.name, choice.parameters, rows, settings=settings))
    output.write({"file": file, **numbers})
    console = make_console()
    say(console, f"read {predictions.describe()}", *samples.notes)
    say(console, *words.choice_lines(choice))
    console.print(words.scores_table(choice))
    given = [] if predictions.confidence is None else [words.given_line(samples.select(choice.judged.rows))]
    say(console, *given, *saved)
    count = choice.judged.num_resamples
    note = f"in brackets: 95% intervals, those that need it from {count:,} resamples"
    notes = [note if count else "no intervals per score; --resamples 200 computes them"]
    say(console, *words.refusal_lines(choice), *notes, style="dim")


@Parameter(name="*", group=GROUPS["costs"])
@dataclass(frozen=True)
class Costs:
    """The threshold of least cost.

    Args:
        cost_error: cost of an accepted error, for the threshold of least cost
        cost_reject: cost of a rejected prediction
        cost_table: costs of errors by class: columns label (the true class), prediction or both, and cost (.csv,
            .json)
        folds: folds to measure the cost: each with the threshold of the others (default: 5; --split uses none)
    """

    cost_error: Number | None = None
    cost_reject: Number | None = None
    cost_table: InFile | None = None
    folds: Folds | None = None

    def asked(self, **others: float | None) -> bool:
        """Whether a flag asks for the threshold of least cost; an error if another one asks for something else."""
        names = ("cost_error", "cost_reject", "cost_table")
        given = [name for name in names if getattr(self, name) is not None]
        if not given:
            if self.folds is not None:
                raise ValueError("expected --folds with --cost-error and --cost-reject, but got neither")
            return False
        for name, value in others.items():
            if value is not None:
                raise ValueError(f"expected --{name} or costs, but got both; leave out {flag_of(given[0])}")
        if self.cost_reject is None or given == ["cost_reject"]:
            raise ValueError(
                f"expected --cost-reject with --cost-error or --cost-table, but got {flag_of(given[0])} alone"
            )
        return True


@command("decide", "how-to/threshold.md", "confrank threshold predictions.npz --risk 0.01 --delta 0.001")
def threshold(
    file: str,
    /,
    *,
    risk: Share | None = None,
    delta: Share = 0.001,
    coverage: Coverage | None = None,
    by: Columns | None = None,
    per_class: bool = False,
    sample_weight: Column | None = None,
    split: Share | None = None,
    seed: Natural = 0,
    costs: Costs = Costs(),  # noqa: B008
    output: Target = Target(),  # noqa: B008
    reading: Reading = Reading(),  # noqa: B008
) -> None:
    """Choose a threshold with a guaranteed error rate, or of least cost.

    Args:
        file: predictions on data that the model was not trained on, or a run folder
        risk: error rate among accepted predictions to guarantee
        delta: largest probability that the guarantee does not hold
        coverage: share of predictions to accept, instead of --risk
        by: a threshold for each value of this column, with --risk for each
        per_class: a threshold for each predicted class
        sample_weight: weight of each row, for --coverage and costs; a guarantee takes none
        split: share of the rows to check the threshold on; it is chosen on the others
        seed: seed of the split
    """
    least_cost, column = costs.asked(risk=risk, coverage=coverage), one_column(by)
    asked = Asked(file, risk, delta, coverage, sample_weight, split, seed, output, reading)
    if column is not None or per_class:
        group_threshold(asked, column, per_class)
    elif least_cost:
        cheapest_threshold(asked, costs)
    else:
        one_threshold(asked)


@dataclass(frozen=True)
class Asked:
    """What the three kinds of thresholds have in common."""

    file: str
    risk: float | None
    delta: float
    coverage: float | None
    sample_weight: str | None
    split: float | None
    seed: int
    output: Target
    reading: Reading

    def open(self, predictions: "Predictions") -> "Policy | None":
        if self.split is not None and self.output.policy is not None:
            raise ValueError(
                "expected either --split or --policy, but got both; a policy is checked by confrank monitor"
            )
        return self.output.open(self.file, predictions)


def one_threshold(asked: Asked) -> None:
    """A threshold for all answers, by --risk or --coverage."""
    from confrank.decisions import guaranteed_threshold, measured_at, random_split, threshold_for_coverage
    from confrank.decisions.policy import ThresholdPart
    from confrank.decisions.policy_rows import assumption_notes
    from confrank.decisions.policy_words import risk_promise
    from confrank.report.decision import (
        check_lines,
        classifier_lines,
        confidence_rule,
        temperature_of,
        threshold_lines,
    )

    risk, delta, coverage, output = asked.risk, asked.delta, asked.coverage, asked.output
    if risk is not None and coverage is not None:
        raise ValueError("expected either --risk or --coverage, but got both")
    if risk is None and coverage is None:
        raise ValueError(
            "expected --risk, --coverage, or --cost-error with --cost-reject, but got none of them; try --risk 0.05"
        )
    output.check(asked.file, asked.reading)
    predictions, samples = asked.reading.weighted(asked.file, asked.sample_weight)
    print_read(predictions, samples, assumption_notes(predictions, output.policy) if risk is not None else [])
    policy, others = asked.open(predictions), None
    if policy is not None:
        samples, rows = output.unseen(policy, (asked.file, predictions, samples), asked.seed)
    if asked.split is not None:
        chosen, rest = random_split(len(samples), asked.split, asked.seed)
        samples, others = samples.select(chosen), samples.select(rest)
    confidence, correct, weight = samples.confidence, samples.correct, samples.weight
    if risk is not None:
        point = guaranteed_threshold(confidence, correct, risk, delta=delta, sample_weight=weight)
    else:
        assert coverage is not None
        point = threshold_for_coverage(confidence, correct, coverage, sample_weight=weight)
    name, averaged = confidence_rule(predictions)
    name = None if policy is not None and policy.score is not None else name
    temperature = temperature_of(predictions, asked.file)
    check = None if others is None else measured_at(others.confidence, others.correct, point.threshold)
    lines = threshold_lines(point, risk, delta)
    if policy is None:
        lines += classifier_lines(point, name, temperature, averaged=averaged)
    lines += [] if check is None else check_lines(check, risk)
    if policy is not None:
        promise = "" if risk is None else risk_promise(risk, delta, len(samples))
        settings = {"risk": risk, "delta": delta, "coverage": coverage, "bound": point.bound}
        settings |= {"accepted": point.accepted, "wrong": point.wrong}
        lines += output.save(policy, ThresholdPart(point.threshold, rows, promise, settings=settings))
    requested = {"requested_risk": risk, "delta": delta, "requested_coverage": coverage}
    rule = {"confidence": name, "temperature": temperature and float(temperature)}
    output.write({"file": asked.file, **requested, **rule, **point.as_dict(), "check": check and check.as_dict()})
    print("\n".join(lines))


def group_threshold(asked: Asked, by: str | None, per_class: bool) -> None:
    """A threshold for each group or predicted class."""
    import numpy as np

    from confrank.decisions import group_thresholds, random_split
    from confrank.decisions.group_thresholds import class_names, measured_by_group, rows_in_groups
    from confrank.decisions.guarantee import refuse_weights
    from confrank.decisions.policy import ThresholdPart
    from confrank.decisions.policy_rows import assumption_notes
    from confrank.report.guarantees import group_shortage_lines, group_threshold_lines

    risk, output, reading = asked.risk, asked.output, asked.reading
    if risk is None or asked.coverage is not None:
        flag = "--per-class" if by is None else "--by"
        raise ValueError(f"expected --risk with {flag}, but got {'none' if asked.coverage is None else '--coverage'}")
    if by is not None and per_class:
        raise ValueError("expected either --by or --per-class, but got both")
    output.check(asked.file, reading)
    refuse_weights(None if asked.sample_weight is None else [])
    reading.refuse_weights()
    source = reading.source(asked.file, keep=[by])
    predictions, samples = source.predictions, source.samples
    print_read(predictions, samples, assumption_notes(predictions, output.policy))
    policy = asked.open(predictions)
    rows, others, used = np.arange(len(predictions)), None, None
    if policy is not None:
        rows, used = policy.usable(predictions, "promise", file=asked.file, seed=asked.seed)
        predictions = policy.matched(predictions)  # with the classes in the order of the policy
        samples = ranked_by(policy, predictions, samples)
    elif asked.split is not None:
        rows, others = random_split(len(predictions), asked.split, asked.seed)
    names = (policy and policy.classes) or class_names(predictions, samples)
    groups = rows_in_groups(predictions, samples, by, names)
    chosen = samples.select(rows)
    result = group_thresholds(chosen.confidence, chosen.correct, groups[rows], risk, asked.delta)
    checks = {} if others is None else measured_by_group(result, samples.select(others), groups[others])
    of = by or CLASS
    promise, shortage = result.promise(of), group_shortage_lines(result, of)
    if all(one.point is None for one in result.groups):
        hopeless = all(one.needed is None for one in result.groups)
        more = "a model with fewer wrong" if hopeless else "more validation"
        raise InputError(
            f"expected error rates that can be certified with {counted(len(rows), 'prediction')}, but got"
            f" {risk:g}: {'; '.join(shortage)}",
            f"use {more} predictions, or a higher {{risk}}",
        )
    lines = [*group_threshold_lines(result, of, checks), f"guarantee   {promise}", *shortage]
    if policy is not None:
        counts = {one.group: one.as_dict() for one in result.groups}
        settings = {"method": "learn-then-test", "risk": risk, "delta": asked.delta, "groups": counts}
        kind: Any = "class" if by is None else "group"
        part = ThresholdPart(None, used, sentence(promise), kind, by, result.thresholds, settings)
        lines += output.save(policy, part)
    check = {name: point.as_dict() for name, point in checks.items()} or None
    requested = {"file": asked.file, "by": by, "per_class": per_class}
    output.write({**requested, **result.as_dict(), "promise": promise, "check": check})
    print("\n".join(lines))


def cheapest_threshold(asked: Asked, costs: Costs) -> None:
    """The threshold of least cost, and what it costs on rows that did not choose it."""
    from confrank.decisions import OperatingPoint
    from confrank.decisions.cost_tables import costs_of_rows
    from confrank.decisions.costs import checked_cost_threshold
    from confrank.decisions.policy import ThresholdPart
    from confrank.report.decision import classifier_lines, confidence_rule, cost_lines, temperature_of

    output, table = asked.output, costs.cost_table
    output.check(asked.file, asked.reading, inputs=[] if table is None else [table])
    if asked.split is not None and costs.folds is not None:
        raise ValueError("expected --split or --folds, but got both")
    predictions, samples = asked.reading.weighted(asked.file, asked.sample_weight)
    print_read(predictions, samples)
    policy = asked.open(predictions)
    if policy is not None:
        samples, rows = output.unseen(policy, (asked.file, predictions, samples), asked.seed)
    errors: Any = costs.cost_error
    assert costs.cost_reject is not None, "asked with an error's cost"
    if table is not None:
        errors = costs_of_rows(table, samples, predictions.class_names, errors, asked.file)
    rule, checked = checked_cost_threshold(
        samples, errors, costs.cost_reject, costs.folds or FOLDS, asked.split, asked.seed
    )
    name, averaged = confidence_rule(predictions)
    temperature = temperature_of(predictions, asked.file)
    lines = cost_lines(rule, checked, costs.cost_error)
    if rule.held_out is None:
        lines.append(f"new rows    not measured: {counted(len(samples), 'row')} cannot be split into folds")
    point = OperatingPoint(rule.threshold, rule.accepted, rule.wrong, rule.num_samples)
    if policy is not None:
        values = {key: value for key, value in rule.as_dict().items() if key != "num_samples"}
        settings = {"method": "cost", "cost_table": None if table is None else Path(table).name}
        part = ThresholdPart(values.pop("threshold"), rows, settings={**settings, **values})
        lines += output.save(policy, part)
    elif not math.isinf(rule.threshold):
        lines += classifier_lines(point, name, temperature, averaged=averaged)
    shares = {"coverage": point.coverage, "risk": point.risk}
    how = {"confidence": name, "temperature": temperature and float(temperature), "cost_table": table}
    output.write({"file": asked.file, **how, **rule.as_dict(), **shares})
    print("\n".join(lines))


@command("decide", "how-to/guarantees.md", "confrank sets predictions.npz --method aps --new new.csv --out sets.csv")
def sets(
    file: str,
    /,
    *,
    level: Share = 0.9,
    method: Literal["lac", "aps", "raps"] = "lac",
    per_class: bool = False,
    by: Columns | None = None,
    penalty: Number = 0.01,
    free_rank: Natural = 5,
    seed: Natural = 0,
    new: New = New(),  # noqa: B008
    output: Target = Target(),  # noqa: B008
    reading: Reading = Reading(),  # noqa: B008
) -> None:
    """Build sets of classes that hold the true one at a chosen level.

    Args:
        file: labelled predictions on data that the model was not trained on, or a run folder
        level: probability that a set includes the true class
        method: lac (smallest), aps (adaptive) or raps (regularised)
        per_class: keep the level within each true class
        by: keep the level within each value of this column
        penalty: raps: added for each rank beyond --free-rank
        free_rank: raps: ranks without penalty
        seed: seed of the random numbers of aps and raps
    """
    from confrank.decisions import conformal_sets
    from confrank.decisions.answers import overlap_notes, write_rows
    from confrank.decisions.group_thresholds import group_values
    from confrank.decisions.policy import Policy, SetsPart
    from confrank.decisions.policy_apply import row_keys
    from confrank.decisions.policy_rows import assumption_notes
    from confrank.report.guarantees import set_lines, set_sizes, size_line

    output.check(file, reading, new.out, inputs=new.check())
    column = one_column(by)
    reading.refuse_weights()
    source = reading.source(file, keep=[column])
    predictions = source.predictions
    if predictions.table is None or predictions.label is None:
        raise ValueError(
            f"expected logits or probabilities of all classes to build sets, but {file} has {predictions.describe()}"
        )
    print_read(predictions, source.samples, assumption_notes(predictions, output.policy))
    policy = output.open(file, predictions)
    base = Policy.of(predictions) if policy is None else policy
    index, rows = base.usable(predictions, "promise", file=file, seed=seed)
    known = base.matched(predictions)  # with the classes in the order of the policy
    assert known.label is not None, "the file has labels"
    keys = row_keys(known)
    common: dict[str, Any] = {name: values[index] for name, values in base.table(known).items()}
    common["key"] = None if keys is None else keys[index]
    common["group"] = None if column is None else group_values(known, column)[index]
    shape: dict[str, Any] = {"level": level, "method": method, "per_class": per_class, "seed": seed}
    rule = conformal_sets(**common, label=known.label[index], **shape, penalty=penalty, free_rank=free_rank)
    own, part = rule.sets(**common), SetsPart.of(rule, rows, column)
    of, names = column or "group", base.classes
    promise, shortage = rule.promise(of), rule.shortage(of, names)
    lines = [*set_lines(rule, of, names), size_line(own, "calibration row"), f"guarantee   {promise}"]
    lines += [] if shortage is None else [shortage]
    sizes: dict[str, Any] = {"calibration": set_sizes(own), "new": None}
    made = base.with_part(part, replace=True)
    if new.new is not None:
        unlabelled, answers = reading.answers(new.new, made)
        assert answers.sets is not None, "the policy has sets"
        lines += [*overlap_notes(made, unlabelled), size_line(answers.sets, "new row")]
        sizes["new"] = set_sizes(answers.sets)
    if policy is not None:
        lines += output.save(policy, part)
    if new.out is not None:
        lines += write_rows(new.out, unlabelled, {"set": answers.columns()["set"]}, "sets")
    result = {"file": file, "by": column, **rule.as_dict(), "promise": promise, "shortage": shortage}
    output.write({**result, **sizes})
    print("\n".join(lines))


@command(
    "decide", "how-to/guarantees.md", "confrank select predictions.npz --fdr 0.05 --new new.csv --out selected.csv"
)
def select(
    file: str,
    /,
    *,
    fdr: Share = 0.05,
    new: New = New(),  # noqa: B008
    output: Output = Output(),  # noqa: B008
    reading: Reading = Reading(),  # noqa: B008
) -> None:
    """Select new answers so that few of them are wrong, on average.

    Args:
        file: labelled predictions on data that the model was not trained on, or a run folder
        fdr: largest expected share of wrong answers among the selected (false-discovery rate)
    """
    from confrank.decisions import Policy, select_with_fdr
    from confrank.decisions.answers import OVERLAP, write_rows
    from confrank.decisions.policy_rows import assumption_notes, made_on
    from confrank.report.guarantees import selection_lines
    from confrank.runs.outputs import keep_inputs

    inputs = new.check()
    if new.new is None or new.out is None:
        raise ValueError("expected new predictions to select from, but got none; add --new NEW --out OUT.csv")
    keep_inputs([file, predictions_path(file), reading.truth, *inputs], output.json, new.out)
    reading.refuse_weights()
    source = reading.source(file)
    predictions = source.predictions
    print_read(predictions, source.samples, assumption_notes(predictions))
    policy = Policy.of(predictions)  # without parts: it ranks both files in the same way
    _, rows = policy.usable(predictions, "promise", file=file)
    unlabelled, answers = reading.answers(new.new, policy)
    confidence, correct = policy.confidence(predictions), policy.correct(predictions)
    selection = select_with_fdr(confidence, correct, answers.confidence, fdr)
    promise, shortage = selection.promise(), selection.shortage()
    lines = [OVERLAP] if made_on([rows], policy.matched(unlabelled)) else []
    lines += [*selection_lines(selection), f"guarantee   {promise}", *([] if shortage is None else [shortage])]
    lines += write_rows(new.out, unlabelled, {"selected": selection.selected.tolist()}, "selection")
    counts = {"n": selection.num_calibration, "num_wrong": len(selection.wrong)}
    chosen = {"num_new": len(selection.selected), "num_selected": selection.num_selected}
    asked = {"file": file, "new": new.new, "fdr": fdr}
    output.write({**asked, **counts, **chosen, "promise": promise, "shortage": shortage})
    print("\n".join(lines))


@command("decide", "how-to/policy.md", "confrank apply policy.json new.csv --out answers.csv")
def apply(
    policy: str,
    new: str,
    /,
    *,
    out: CsvFile = Path("answers.csv"),
    reading: ReadingNew = ReadingNew(),  # noqa: B008
) -> None:
    """Accept or reject new predictions by a policy, or list their sets.

    Args:
        policy: policy file (.json) that other commands wrote
        new: new predictions, with or without labels
        out: file to write
    """
    from confrank.decisions.answers import check_answers, write_answers
    from confrank.decisions.policy import Policy
    from confrank.runs.outputs import keep_inputs

    keep_inputs([policy, new, predictions_path(new)], out)
    check_answers(out)
    rule = Policy.load(policy)
    predictions, answers = reading.answers(new, rule)
    print("\n".join([f"read {predictions.describe()}", *write_answers(out, rule, predictions, answers)]))


@command("decide", "how-to/monitor.md", "confrank monitor policy.json labelled.csv --time date --report monitor.html")
def monitor(
    policy: str,
    labelled: str,
    /,
    *,
    time: Column | None = None,
    alpha: Share = 0.05,
    unlabelled: bool = False,
    report: Annotated[Page | None, Parameter(group=GROUPS["output"])] = None,
    output: Output = Output(),  # noqa: B008
    reading: Reading = Reading(),  # noqa: B008
) -> None:
    """Test whether a policy's guarantee still holds (exit code 3 if not).

    Args:
        policy: policy file (.json) that other commands wrote
        labelled: new predictions with their labels
        time: sort rows by this column of numbers or dates, as in 2026-11-30 or 30.11.2026 (default: as in the file)
        alpha: largest probability of a false alarm
        unlabelled: test only drift of the confidence, without labels
        report: write a page with charts over time (.html)
    """
    import numpy as np

    from confrank.decisions.chronology import chronology
    from confrank.decisions.policy import Policy
    from confrank.decisions.promises import accepted_share, follow, follow_unlabelled
    from confrank.files import write_atomically
    from confrank.report.monitoring import monitor_lines, monitor_record
    from confrank.runs.outputs import keep_inputs

    keep_inputs([policy, labelled, predictions_path(labelled), reading.truth], output.json, report)
    rule, column = Policy.load(policy), reading.column(time, "time")
    options = {"labelled": not unlabelled, "classes": rule.classes, "like": rule.input.reading}
    predictions = reading.read(labelled, [*rule.columns, column], **options)
    times = None if column is None else chronology(predictions.extra[column], column)
    order = np.arange(len(predictions)) if times is None else times.order
    with about(labelled):
        followed = (follow_unlabelled if unlabelled else follow)(rule, predictions, order, alpha=alpha)
    promises = [part.promise for part in rule.parts().values() if part.promise]
    texts = None if times is None else times.texts
    output.write({"policy": policy, "file": labelled, **monitor_record(followed, texts)})
    if report:
        from confrank.report.monitor_page import monitor_page

        names = [Path(policy).name, Path(labelled).name]
        write_atomically(report, monitor_page(followed, promises, names, texts, accepted_share(rule)))
    notes = [] if times is None else times.notes
    print("\n".join([f"read {predictions.describe()}", *rule.doubts(predictions), *notes]))
    print("\n".join(monitor_lines(followed, promises, texts)))
    if report:
        print(f"report: {report}")
    if followed.monitored.holds is False:
        sys.exit(BROKEN)

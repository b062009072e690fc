"""What objects print."""

import re

import numpy as np
import pandas as pd
import pytest

from confrank import compare, evaluate
from confrank.decisions import (
    Policy,
    conformal_sets,
    cost_threshold,
    group_thresholds,
    guaranteed_threshold,
    measured_at,
    monitor,
    select_with_fdr,
)
from confrank.decisions.drift import reference_of
from confrank.decisions.policy import ThresholdPart
from confrank.metrics import reliability_bins, risk_coverage_curve
from confrank.predictions import read
from confrank.scores import choose

RANDOM = np.random.default_rng(0)
LOGITS = 2 * RANDOM.normal(0, 1, (400, 3))
LABEL = (LOGITS + RANDOM.gumbel(size=LOGITS.shape)).argmax(axis=1)
TABLE = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
SURE, RIGHT = TABLE.max(axis=1), TABLE.argmax(axis=1) == LABEL
SITE = np.array(["north & <b>east</b>", "south"])[RANDOM.integers(0, 2, 400)]
MODEL = {"probabilities": TABLE, "label": LABEL}
SHOWN = {
    "evaluation": lambda: evaluate(**MODEL),
    "undefined": lambda: evaluate(confidence=SURE[:5], correct=np.ones(5)),
    "comparison": lambda: compare(
        MODEL, MODEL | {"confidence": SURE**2}, by={"site": SITE}, names=["a", "<i>b</i>"], resamples=100
    ),
    "one model": lambda: compare(MODEL, by={"site": SITE}, resamples=0),
    "curve": lambda: risk_coverage_curve(SURE, RIGHT),
    "grouping": lambda: SHOWN["one model"]().groups[0]["site"],
    "bins": lambda: reliability_bins(SURE, RIGHT),
    "no curve": lambda: risk_coverage_curve([], []),
    "threshold": lambda: guaranteed_threshold(SURE, RIGHT, 0.2, delta=0.05),
    "nothing accepted": lambda: measured_at(SURE, RIGHT, 2.0),
    "no rows": lambda: measured_at([], [], 0.5),
    "costs": lambda: cost_threshold(SURE, RIGHT, cost_error=5, cost_reject=1),
    "groups": lambda: group_thresholds(SURE, RIGHT, SITE, risk=0.2, delta=0.1),
    "too few": lambda: group_thresholds(SURE[:9], RIGHT[:9], SITE[:9], risk=0.01, delta=0.1),
    "sets": lambda: conformal_sets(**MODEL, group=SITE),
    "selection": lambda: select_with_fdr(SURE, RIGHT, SURE[:50], 0.2),
    "monitor": lambda: monitor(
        RIGHT, 0.1, group=SITE, confidence=SURE, reference=reference_of(SURE)
    ),
    "broken": lambda: monitor(np.arange(200) % 2, 0.1),
    "nothing tested": lambda: monitor([True], 0.1, accepted=[False]),
    "policy": lambda: Policy.of(MODEL).with_part(ThresholdPart(0.7)),
    "answers": lambda: Policy.of(MODEL).with_part(ThresholdPart(0.7)).apply(
        MODEL | {"classes": ["<script>", "b", "c"]}
    ),
    "no rule": lambda: Policy.of({"confidence": SURE, "correct": RIGHT}).apply({"confidence": SURE[:3]}),
    "choice": lambda: choose(**MODEL),
    "predictions": lambda: read(pd.DataFrame({"confidence": SURE, "correct": RIGHT, "<u>": SITE}), keep=["<u>"]),
    "arrays": lambda: read(pd.DataFrame({"confidence": SURE, "correct": RIGHT})).select(np.arange(3)),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_printed_fits_a_screen(name):
    printed = repr(SHOWN[name]())
    assert 0 < len(printed.splitlines()) < 40 and max(map(len, printed.splitlines())) < 400
    assert printed == printed.strip() and "\n\n\n" not in printed


def test_the_groups_of_a_comparison_are_printed():
    result = SHOWN["comparison"]()
    printed = repr(result)
    for model, groups in zip(result.models, result.groups, strict=True):
        for group in groups["site"].groups:
            point = group.acceptance
            (line,) = (
                one for one in printed.splitlines() if one.startswith(f"{group.value}  ") and f" {model.name} " in one
            )
            chosen = group.value == SITE
            accepted = chosen & (model.evaluation.num_samples > 0) & (
                (SURE if model.name == "a" else SURE**2) >= groups["site"].overall.threshold - 1e-12
            )  # fmt: skip
            assert f"{chosen.sum()} " in line and f"{accepted.sum() / chosen.sum():.4f}" in line
            assert f"{(accepted & ~RIGHT).sum() / accepted.sum():.4f} [" in line
            assert point.accepted == accepted.sum()
    assert f"{RIGHT[SITE == 'south'].mean():.4f}" in printed


def test_a_bin_is_printed_as_it_is():
    inside = (SURE > 14 / 15) & (SURE <= 1)
    last = repr(reliability_bins(SURE, RIGHT)).splitlines()[-1].split()
    assert last == [
        "0.9333",
        "to",
        "1",
        f"{inside.sum()}",
        f"{SURE[inside].mean():.4f}",
        f"{RIGHT[inside].mean():.4f}",
    ]


def test_only_some_of_many_groups_are_printed():
    result = compare(MODEL, by={"row": np.arange(400) // 10}, resamples=0)
    lines = repr(result).splitlines()
    assert lines[-2] == "and 10 more groups of lower error rate"
    assert sum(bool(re.match(r"\d+ +10 ", line)) for line in lines) == 30

"""The experiment on the ranking loss with averaged weights: what is trained, and its intervals."""

import numpy as np
import pytest
import torch
from programs import program
from scipy.stats import ttest_rel

from confrank.config import RunConfig
from confrank.data import hold_out, load
from confrank.training import Run

EXPERIMENT = program("experiments/ranking_with_averaging.py")


def test_intervals_are_those_of_students_paired_test():
    first, second = np.random.default_rng(0).normal(0.1, 0.02, (2, 6))
    mean, *limits = EXPERIMENT.interval(first, second)
    assert mean == pytest.approx((second - first).mean())
    assert limits == pytest.approx([*ttest_rel(second, first).confidence_interval(0.95)])


def trained(variant):
    config = RunConfig(model="mlp", method="crl-softmax", epochs=3, averaging="swa", averaging_start=0.3, seed=1)
    data, _ = hold_out(load("digits"), 0.2, 1)
    seen = []
    EXPERIMENT.trained(EXPERIMENT.VARIANTS[variant], config, data, lambda run: seen.append(run.snapshot()) or {})
    return config, data, seen


def test_a_variant_measures_the_last_and_the_averaged_weights_of_one_training():
    config, data, seen = trained("crl")
    run = Run(config, data, torch.device("cpu"))
    while run.epoch < 3:
        for _ in range(run.num_steps):
            run.step()
        if run.epoch == 2:
            last = run.snapshot()[0]
        run.finish_epoch()
    for mine, there in zip((last, run.snapshot()[0]), (weights for weights, _ in seen), strict=True):
        assert all(torch.equal(mine[name], there[name]) for name in mine)


def test_the_average_earns_the_rates_without_a_trace_in_the_training():
    """In the only epoch with an average, each image is counted once, as the average judges it."""
    seen, plain = trained("teacher")[2], trained("crl")[2]
    counts, other = (state["criterion"] for _, state in (seen[-1], plain[-1]))
    examined = next(values for name, values in counts.items() if name.endswith("examined"))
    assert examined.unique().tolist() == [3]
    correct = [next(values for name, values in one.items() if name.endswith("correct")) for one in (counts, other)]
    assert int((correct[0] - correct[1]).abs().max()) == 1
    # The step before that epoch is over has the weights of a training whose rates come from the steps.
    assert all(torch.equal(seen[0][0][name], plain[0][0][name]) for name in seen[0][0])


def test_the_cases_of_rows_from_before_there_were_other_data_sets():
    row = {"model": "mlp", "averaging_lr": 0.05, "epochs": 100, "variant": "crl", "seed": 300, "cpu_s": 1.0}
    assert EXPERIMENT.case_of(row) == EXPERIMENT.Case("digits", 720, True, "mlp", 0.05, 100, "none", "crl", 300)


def test_training_images_are_a_stratified_draw(tmp_path):
    random = np.random.default_rng(0)
    arrays = {
        f"{part}_images": random.integers(0, 256, (60, 32, 32, 3), dtype=np.uint8) for part in ("train", "test")
    }
    labels = {f"{part}_labels": np.arange(60) % 3 for part in ("train", "test")}
    np.savez(tmp_path / "small.npz", **arrays, **labels)
    drawn = [EXPERIMENT.drawn(str(tmp_path / "small.npz"), None, 30, crops, 7) for crops in (True, False)]
    for data in drawn:
        assert np.bincount(data.train.labels).tolist() == [10, 10, 10]
        assert np.array_equal(data.train.index, drawn[0].train.index)
    assert drawn[1].padding == 0 and not drawn[1].flip
    images = torch.from_numpy(data.train.images[:2]).permute(0, 3, 1, 2).float()
    assert EXPERIMENT.resnet8(3)(images).shape == (2, 3)

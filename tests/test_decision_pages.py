"""The decision on the report page, and the page of the monitor, in a real browser."""

import re
from dataclasses import replace

import numpy as np
import pytest
from test_page import NASTY, Tags, browser, watch  # noqa: F401 - fixtures

from confrank.analysis import analyse
from confrank.decisions.outcome import Sets, outcome_of
from confrank.decisions.policy import Policy, ThresholdPart
from confrank.decisions.promises import follow
from confrank.metrics import sample_values
from confrank.metrics.groups import rows_by_group
from confrank.predictions import Predictions
from confrank.report.monitor_page import Series, _chart, _thinned, monitor_page
from confrank.report.page import page
from confrank.report.policy_section import policy_section

SIZE = 3000


def grouped():
    """A policy with a threshold per group of nasty names, and predictions whose error rate rises in one of them."""
    rng = np.random.default_rng(0)
    site = np.array([name[:300] for name in NASTY], dtype=object)[rng.integers(0, len(NASTY), SIZE)]
    noise = np.where((site == NASTY[3]) & (np.arange(SIZE) > 1500), 5.0, 1.0)[:, None]
    label = rng.integers(0, 3, SIZE)
    logits = rng.normal(size=(SIZE, 3)) * noise + 2.5 * (label[:, None] == np.arange(3))
    predictions = Predictions(logits=logits, label=label, extra={"site": site})
    bare = Policy.of(predictions)
    _, rows = bare.usable(predictions, "promise", file="validation.csv")
    thresholds = dict.fromkeys(rows_by_group(site), 0.8) | {"plain": None}
    part = ThresholdPart(
        None, replace(rows, digest="other", sketch=None), "At most 0.1 are wrong.", per="group", column="site",
        thresholds=thresholds, settings={"risk": 0.1},
    )  # fmt: skip
    return bare.with_part(part), predictions


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The paths of the report page and of the monitor's page, and what they show."""
    folder = tmp_path_factory.mktemp("decision")
    policy, predictions = grouped()
    policy.save(folder / "policy.json")
    outcome = replace(outcome_of(policy, predictions), sets=Sets({0: 10, 1: 2500, 2: 490}, 2711, 0.9), cost=0.1234)
    section = policy_section(policy, outcome, NASTY[0], (folder / "policy.json").read_bytes())
    analysis = analyse("predictions.csv", sample_values(logits=predictions.logits, label=predictions.label))
    (folder / "report.html").write_text(page([analysis], decision=section), encoding="utf-8")
    followed = follow(policy, predictions, np.arange(SIZE))
    times = [f"2026-{1 + row // 300:02}-{1 + row % 28:02}" for row in range(SIZE)]
    content = monitor_page(followed, ["At most 0.1 are wrong."], ["policy.json", NASTY[0]], times, 0.7)
    (folder / "monitor.html").write_text(content, encoding="utf-8")
    return folder, outcome, followed


CUT_OFF = """() => {
  const width = document.documentElement.clientWidth, bad = [];
  if (document.documentElement.scrollWidth > width) bad.push("the page scrolls sideways");
  for (const node of document.querySelectorAll("#decision *, #tests *, #drift *, .verdict *")) {
    if (node.closest("svg") || node.closest(".scroll") && node.closest(".scroll").scrollWidth > width) continue;
    const box = node.getBoundingClientRect();
    if (box.width && box.right > width + 1) bad.push(node.tagName + " " + node.textContent.trim().slice(0, 60));
  }
  for (const region of document.querySelectorAll("#decision .scroll, #tests .scroll"))
    if (region.scrollWidth > region.clientWidth + 1) bad.push("scrolls: " + region.getAttribute("aria-label"));
  return bad;
}"""


@pytest.mark.parametrize("name", ["report.html", "monitor.html"])
def test_nothing_is_cut_off_and_nothing_complains(watch, written, name):  # noqa: F811
    watched = watch(written[0] / name, 360)
    for width in (360, 500, 1280):
        watched.page.set_viewport_size({"width": width, "height": 800})
        assert watched.page.evaluate(CUT_OFF) == [], width
    assert (watched.complaints, watched.network(), watched.dialogs) == ([], [], [])


def test_the_decision_on_the_page_is_that_of_the_policy(watch, written):  # noqa: F811
    folder, outcome, _ = written
    watched = watch(folder / "report.html", 1280)
    shown = watched.page.locator("#decision")
    text = shown.inner_text()
    assert "At most 0.1 are wrong." in text and "mean cost of an answer\n0.1234" in text
    assert f"{outcome.overall.accepted:,} of {SIZE:,}" in text
    assert f"{outcome.overall.wrong:,} ({100 * outcome.overall.risk:.2f}%)" in text
    assert "2.16" not in text and "1.16" in text and "90.37% (guaranteed: 90.0%)" in text
    assert "no part of the policy was made" in text
    rows = shown.locator("table.sortable tbody tr")
    assert rows.count() == len(outcome.groups) == len(NASTY)
    for row, (name, group) in zip(rows.all(), outcome.groups.items(), strict=True):
        cells = row.locator("td").all_inner_texts()
        assert cells[0] == f"{group.num_samples:,}" and f"{group.accepted:,} accepted" in cells[1]
        assert ("no threshold" in cells[3]) == (name == "plain")
    button = shown.locator("thead button").nth(1)
    button.focus()
    watched.page.keyboard.press("Enter")
    numbers = [int(value) for value in shown.locator("table.sortable tbody td:nth-of-type(1)").all_inner_texts()]
    assert numbers == sorted(numbers)


def test_the_policy_can_be_downloaded(watch, written, tmp_path):  # noqa: F811
    folder, _, _ = written
    watched = watch(folder / "report.html", 500)
    link = watched.page.locator("#decision a[download]")
    link.focus()
    with watched.page.expect_download() as download:
        watched.page.keyboard.press("Enter")
    download.value.save_as(tmp_path / "got.json")
    assert (tmp_path / "got.json").read_bytes() == (folder / "policy.json").read_bytes()
    assert watched.complaints == []
    Policy.load(tmp_path / "got.json")


def test_the_page_of_the_monitor_says_what_was_tested(watch, written):  # noqa: F811
    folder, _, followed = written
    watched = watch(folder / "monitor.html", 1280)
    broken = followed.monitored.first_alarm
    text = watched.page.locator(".verdict").inner_text()
    assert "The guarantee is broken" in text and f"row {broken.alarm_row:,} (2026-" in text
    rows = watched.page.locator("#tests tbody tr")
    assert rows.count() == len(followed.monitored.watches) == len(NASTY) - 1
    cells = rows.first.locator("td").all_inner_texts()
    assert cells[0] == "10%" and cells[3] == "100" and cells[4].startswith(f"row {broken.alarm_row:,}")
    assert f"{broken.test.num_wrong:,} of {broken.test.num_answers:,}" in cells[1]
    charts = watched.page.locator("svg[role=img]")
    assert charts.count() == 4 and all(chart.get_attribute("aria-label") for chart in charts.all())
    assert watched.page.locator("#tests .mark").count() == 1
    assert watched.page.locator("#tests .legend").first.locator("span.swatch").count() == len(NASTY) - 1


def test_pages_without_a_browser(written):
    for name in ("report.html", "monitor.html"):
        tags = Tags()
        tags.feed((written[0] / name).read_text(encoding="utf-8"))
        links = [attributes[key] for _, attributes in tags.seen for key in ("src", "href") if key in attributes]
        assert all(link.startswith("data:") for link in links)
        assert "49 &" not in (written[0] / name).read_text(encoding="utf-8")


def test_long_curves_are_thinned_without_losing_their_ends():
    values = np.random.default_rng(0).normal(size=50_000)
    values[12_345] = 9
    kept = _thinned(values)
    assert len(kept) <= 602 and {0, 12_345, 49_999} <= {*kept.tolist()} and (np.diff(kept) > 0).all()


@pytest.mark.parametrize(("promised", "lines"), [
    ([0.1, 0.1, 0.1], [(900, None)]),
    ([0.1, 0.2, 0.3], [(900, 0), (700, 2)]),
    ([0.1, 0.3, 0.1], [(900, None)]),
    ([0.2, 0.3, 0.1], [(900, 2), (800, 0)]),
])  # fmt: skip
def test_dashed_lines_have_the_colours_of_their_curves(promised, lines):
    """The second guarantee has no curve yet, so it has no line and no entry in the legend, but a colour."""
    rows = np.arange(5)
    values = [rows / 10, np.empty(0), rows / 20]
    series = [
        Series(name, rows[: len(part)], part, line) for name, part, line in zip("abc", values, promised, strict=True)
    ]
    drawn = _chart(series, [], (0.0, 1.0), 5)
    assert [(line["height"], line["colour"]) for line in drawn["lines"]] == lines
    assert [(curve["name"], curve["colour"]) for curve in drawn["curves"]] == [("a", 0), ("c", 2)]
    assert drawn["without"] == ["b"]


def test_a_curve_beyond_the_axis_leaves_the_chart():
    """It does not follow the upper edge, as if the value were that of the edge; its dot stays inside."""
    rows = np.arange(4)
    series = [Series("a", rows, np.array([0.5, 2.0, 60.0, 0.0]), 1.0, alarm=1)]
    (curve,) = (drawn := _chart(series, [], (0.0, 1.5), 4))["curves"]
    heights = [float(point.split()[1]) for point in curve["path"][1:].split("L")]
    assert heights == pytest.approx([2000 / 3, -1000 / 3, -1000, 1000], abs=0.1)
    assert curve["dot"] == (50.0, 100.0) and drawn["leaves"]
    assert not _chart([Series("a", rows, rows / 4, 1.0)], [], (0.0, 1.5), 4)["leaves"]


def test_a_promise_with_few_answers_is_named_below_its_chart():
    policy, predictions = grouped()
    site = predictions.extra["site"]
    rows = np.flatnonzero((site != NASTY[1][:300]) | (np.arange(SIZE) < 60))
    few = Predictions(logits=predictions.logits[rows], label=predictions.label[rows], extra={"site": site[rows]})
    content = monitor_page(follow(policy, few, np.arange(len(rows))), [], ["p", "f"])
    assert content.count("Too few answers for a curve") == 1


def test_many_answers_fit_on_the_page():
    rng = np.random.default_rng(0)
    label = np.zeros(10**5, dtype=np.int64)
    logits = np.stack([rng.normal(2, 1, 10**5), np.zeros(10**5)], axis=1)
    predictions = Predictions(logits=logits, label=label)
    part = ThresholdPart(0.7, None, "At most 0.1 are wrong.", settings={"risk": 0.1})
    followed = follow(Policy.of(predictions).with_part(part), predictions, np.arange(10**5))
    assert len(monitor_page(followed, [], ["p", "f"])) < 100_000


@pytest.mark.parametrize("size", [0, 1, 30])
def test_few_answers_have_a_page_too(size):
    logits = np.tile([1.0, 0.0], (size, 1))
    predictions = Predictions(logits=logits, label=np.zeros(size, dtype=np.int64))
    part = ThresholdPart(0.5, None, "At most 0.1 are wrong.", settings={"risk": 0.1})
    followed = follow(Policy.of(predictions).with_part(part), predictions, np.arange(size))
    content = monitor_page(followed, [], ["p", "f"])
    assert ("cannot be tested" in content) == (size == 0) and "nan" not in content.split("</style>")[1]
    if size == 30:  # half of the answers make the first point of a running share, and the others a line
        assert "share of bad answers among the last 15 tested" in content
        assert all(path.count("L") >= 15 for path in re.findall(r'class="curve[^"]*" d="([^"]*)"', content))

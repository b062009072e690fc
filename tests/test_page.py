"""The page in a real browser: Debian's chromium, driven by Playwright. Skipped where no browser is found."""

import json
import math
import os
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from confrank.active import STRATEGIES
from confrank.analysis import analyse, compare, repeats_of, with_images, with_intervals
from confrank.decisions import cost_threshold
from confrank.methods import METHODS
from confrank.metrics import Samples
from confrank.ood import DETECTORS
from confrank.report import colours, svg
from confrank.report.colours import COLOURS, colour_numbers, colours_of
from confrank.report.names import shortened
from confrank.report.page import COST_RATIOS, FOLDER, data_uri, page
from confrank.report.verdict import comparisons, footnotes, percent, verdict

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--headless",
]  # fmt: skip
NASTY = [
    "</script><img src=x onerror=alert(1)>",
    "x" * 10_000,
    "$a_{x$",
    "שלום עולם",
    "{{ 7 * 7 }} &amp; \u2028",
    "plain",
]

SLIDE = "(node, value) => { node.value = value; node.dispatchEvent(new Event('input')) }"


def samples_of(seed=0, size=400):
    num_classes = len(NASTY)
    rng = np.random.default_rng(seed)
    confidence = rng.random(size)
    correct = rng.random(size) < 0.3 + 0.7 * confidence
    label = rng.integers(0, num_classes, size)
    prediction = np.where(correct, label, (label + 1) % num_classes)
    return Samples(confidence, correct, confidence, label=label, prediction=prediction, num_classes=num_classes)


def measured(models, samples, resamples):
    """Models with the same samples, with intervals and differences."""
    return [*with_intervals(dict(enumerate(models)), dict(enumerate(samples)), resamples).values()]


def nasty_page():
    samples = [samples_of(0), samples_of(1, size=300)]
    examined = [analyse(name, item, name, NASTY) for name, item in zip([NASTY[0], NASTY[2]], samples, strict=True)]
    examined[1] = replace(examined[1], pairing="400 and 300 predictions")
    models = [*measured(examined[:1], samples[:1], 50), *measured(examined[1:], samples[1:], 50)]
    return page(models), samples


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the Python package playwright")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        assert "REQUIRE_BROWSER" not in os.environ, "expected chromium, but found none; apt-get install chromium"
        pytest.skip("needs chromium (apt-get install chromium), found none")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield started
        started.close()


class Watched:
    """A page opened from disk, and everything it asked for or complained about."""

    def __init__(self, browser, path, width=1200, **options):
        self.requests, self.complaints, self.dialogs = [], [], []
        self.context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))
        self.page.goto(path.as_uri())

    def text(self, name):
        return self.page.locator(f"#{name}").inner_text()

    def network(self):
        return [url for url in self.requests if not url.startswith(("file://", "data:"))]


@pytest.fixture
def watch(browser, tmp_path):
    """Opens a page, given as a path or by its content; all are closed afterwards."""
    watched = []

    def opened(given, width=1200, **options):
        path = given if isinstance(given, Path) else tmp_path / f"page{len(watched)}.html"
        if path is not given:
            path.write_text(given, encoding="utf-8")
        watched.append(Watched(browser, path, width, **options))
        return watched[-1]

    yield opened
    for one in watched:
        one.context.close()


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    content, samples = nasty_page()
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(content, encoding="utf-8")
    watched = Watched(browser, path)
    watched.samples = samples
    yield watched
    watched.context.close()


def expected_readout(samples, threshold):
    """The numbers beside the chart, counted anew for a threshold."""
    accepted, right = samples.confidence >= threshold, samples.correct
    counts = {
        "accepted": accepted.sum(),
        "errors": (accepted & ~right).sum(),
        "accepted-right": (accepted & right).sum(),
        "accepted-wrong": (accepted & ~right).sum(),
        "rejected-right": (~accepted & right).sum(),
        "rejected-wrong": (~accepted & ~right).sum(),
    }
    shares = {"coverage": accepted.mean(), "risk": (~right[accepted]).mean()}
    return {key: f"{value:,}" for key, value in counts.items()} | {
        key: f"{100 * value:.2f}%" for key, value in shares.items()
    }


def check_readout(opened, samples):
    threshold = opened.page.locator("#threshold").get_attribute("title").removeprefix("exactly ")
    expected = expected_readout(samples, float(threshold))
    assert {key: opened.text(key) for key in expected} == expected
    assert float(opened.text("threshold")) == pytest.approx(float(threshold), rel=1e-5)
    return float(threshold)


def test_the_page_asks_for_nothing_and_complains_about_nothing(opened):
    opened.page.wait_for_timeout(300)
    assert opened.network() == []
    assert len([url for url in opened.requests if url.startswith("file://")]) == 1
    assert opened.complaints == []
    assert opened.dialogs == []
    assert opened.page.locator("img[src='x']").count() == 0


def test_the_policy_blocks_what_is_not_the_pages_own(watch):
    added = (
        "<script>document.title = 'taken'</script><p id='hook' onclick=\"document.title = 'taken'\">x</p>"
        "<style>main { display: none }</style><img src='https://example.invalid/x.png'>"
        "<base href='https://example.invalid/'></body>"
    )
    content = nasty_page()[0]
    watched = watch(content.replace("</body>", added))
    watched.page.locator("#hook").click()
    assert watched.page.title() != "taken"
    assert watched.page.locator("main").is_visible()
    blocked = [line for line in watched.complaints if "Content Security Policy" in line]
    assert all(any(f"{rule} " in line for line in blocked) for rule in ("script-src", "style-src-elem", "img-src"))
    assert watched.page.evaluate("document.baseURI") == watched.page.url
    watched.page.locator("#slider").evaluate(SLIDE, "0.5")  # the page's own script still runs
    assert watched.text("coverage").startswith("50.")


def test_the_slider_shows_what_python_computes(opened):
    slider = opened.page.locator("#slider")
    samples = opened.samples[0]
    assert check_readout(opened, samples) == np.sort(samples.confidence)[::-1][319]
    for position in (0, 1, 57, 200, 399):
        slider.evaluate(SLIDE, (position + 1) / 400)
        assert check_readout(opened, samples) == np.sort(samples.confidence)[::-1][position]


def test_regions_and_charts_have_names_of_their_own(opened):
    """What a screen reader lists: no two tables, and no two charts, by the same name."""
    for part in ("[role=region]", "svg[role=img]"):
        names = [one.get_attribute("aria-label") for one in opened.page.locator(part).all()]
        assert len(names) >= 3 and len({*names}) == len(names)


def test_the_focus_of_the_slider_leaves_its_label_readable(opened):
    slider = opened.page.locator("#slider")
    slider.focus()
    opened.page.keyboard.press("ArrowRight")
    style = slider.evaluate(
        "node => (({outlineStyle: a, outlineWidth: b, outlineOffset: c}) => [a, b, c])(getComputedStyle(node))"
    )
    assert style[0] == "solid" and float(style[1][:-2]) + float(style[2][:-2]) <= 1


def test_the_keyboard_moves_the_slider(opened):
    slider = opened.page.locator("#slider")
    slider.evaluate(SLIDE, 101 / 400)
    slider.focus()
    before = check_readout(opened, opened.samples[0])
    opened.page.keyboard.press("ArrowRight")
    after = check_readout(opened, opened.samples[0])
    ordered = np.sort(opened.samples[0].confidence)[::-1]
    assert (before, after) == (ordered[100], ordered[101])
    opened.page.keyboard.press("PageUp")
    assert opened.text("accepted") == "142"
    opened.page.keyboard.press("PageDown")
    opened.page.keyboard.press("ArrowLeft")
    assert check_readout(opened, opened.samples[0]) == ordered[100]
    opened.page.keyboard.press("Home")
    assert opened.text("accepted") == "1"
    opened.page.keyboard.press("End")
    assert opened.text("coverage") == "100.00%"
    assert "100.00% accepted" in slider.get_attribute("aria-valuetext")


RULES = {math.inf: "reject all", -math.inf: "accept all"}


def check_costs(watched, samples, ratios, **weights):
    """The threshold and cost that the slider shows are those that `cost_threshold` computes, to the last digit."""
    slider = watched.page.locator("#cost")
    for ratio in ratios:
        slider.evaluate(SLIDE, COST_RATIOS.index(ratio))
        rule = cost_threshold(
            samples.confidence, samples.correct, cost_error=ratio, cost_reject=1, folds=0, **weights
        )
        shown = watched.page.locator("#cost-threshold").get_attribute("title").removeprefix("exactly ")
        value = float(shown) if shown else watched.text("cost-threshold")
        assert value == RULES.get(rule.threshold, rule.threshold)
        cost = float(watched.page.locator("#cost-value").get_attribute("title").removeprefix("exactly "))
        assert cost == (pytest.approx(rule.cost) if weights else rule.cost)
        assert float(watched.text("cost-value")) == pytest.approx(rule.cost, rel=1e-5)
        assert float(watched.text("cost-all")) == pytest.approx(rule.accept_all, rel=1e-5)
        covered = float(watched.text("cost-coverage")[:-1]) / 100
        assert weights or covered == pytest.approx(rule.accepted / rule.num_samples, abs=6e-5)
        dot = watched.page.locator("#cost-dot").evaluate("node => node.style.bottom")
        assert float(dot[:-1]) == pytest.approx(100 * rule.cost / 1.25, rel=1e-4)
    assert slider.get_attribute("aria-valuetext").endswith("rejections")


def test_the_cost_slider_shows_what_python_computes(opened):
    assert opened.text("cost-ratio") == "10 rejections" and opened.text("cost-flag") == "10"
    check_costs(opened, opened.samples[0], (1, 2, 5, 30, 10_000))
    radios = opened.page.locator("input[name=model]")
    radios.nth(1).check()
    check_costs(opened, opened.samples[1], (3, 10))
    radios.nth(0).check()
    check_costs(opened, opened.samples[0], (10,))


def test_the_cost_slider_shows_what_the_command_prints(watch, tmp_path, command):
    """Many more rows than the page has points, with ties and near-ties."""
    rng = np.random.default_rng(5)
    confidence = rng.random(5000).round(3) + rng.choice([0, 1e-13], 5000)
    correct = rng.random(5000) < 0.5 + 0.5 * confidence
    np.savez(tmp_path / "p.npz", confidence=confidence, correct=correct)
    command("evaluate", tmp_path / "p.npz", "--resamples", 0, "--report", tmp_path / "page.html")
    watched = watch(tmp_path / "page.html")
    for ratio in (1.5, 10, 50):
        flags = ["--cost-error", ratio, "--cost-reject", 1, "--json", tmp_path / "t.json"]
        command("threshold", tmp_path / "p.npz", *flags)
        printed = json.loads((tmp_path / "t.json").read_text())
        watched.page.locator("#cost").evaluate(SLIDE, COST_RATIOS.index(ratio))
        for name, key in (("cost-threshold", "threshold"), ("cost-value", "cost")):
            shown = watched.page.locator(f"#{name}").get_attribute("title")
            assert shown == f"exactly {printed[key]}", (ratio, name)
    assert watched.complaints == []


def test_without_a_script_the_page_shows_the_same_threshold(watch):
    """The marker, the numbers and the chosen curve are those that the script starts with."""
    content, samples = nasty_page()
    still, alive = watch(content, java_script_enabled=False), watch(content)
    for name in ("rule", "dot"):
        places = [one.page.locator(f"#{name}").bounding_box() for one in (still, alive)]
        offsets = [
            place["x"] - one.page.locator("#curve").bounding_box()["x"]
            for place, one in zip(places, (still, alive), strict=True)
        ]
        assert offsets[0] == pytest.approx(offsets[1], abs=0.5)
    heights = [
        one.page.locator("#dot").get_attribute("style").split("bottom:")[1].strip(" ;%") for one in (still, alive)
    ]
    assert float(heights[0]) == pytest.approx(float(heights[1]))
    expected = expected_readout(samples[0], np.sort(samples[0].confidence)[::-1][319])
    assert {key: still.text(key) for key in expected} == expected
    for one in (still, alive):
        assert one.page.locator("#curve .curve.on").count() == one.page.locator("#curve .curve.on.c0").count() == 1
    assert [one.page.locator("noscript .hint").count() for one in (still, alive)] == [1, 0]


def test_rare_errors_keep_their_digits(watch):
    """11 errors among 160,001: neither nothing nor a rounded hundredth of a per cent."""
    confidence = np.linspace(1, 0, 200_000)
    wrong = np.r_[np.linspace(20_000, 150_000, 11), np.linspace(170_000, 199_000, 8)].astype(int)
    samples = Samples(confidence, ~np.isin(np.arange(200_000), wrong))
    content = page([analyse("rare", samples)])
    assert "Accuracy is 99.9905% over 200,000 predictions." in content
    assert "<strong>Accept the most confident 80%, and 0.0069% of them are wrong.</strong>" in content
    assert "Accept all, and 0.0095% are wrong." in content
    watched = watch(content)
    assert (watched.text("errors"), watched.text("risk"), watched.text("coverage")) == ("11", "0.0069%", "80.00%")
    watched.page.locator("#slider").focus()
    watched.page.keyboard.press("Home")
    accepted = int(watched.text("accepted").replace(",", ""))
    assert float(watched.text("coverage")[:-1]) == pytest.approx(100 * accepted / 200_000, rel=0.05)


def test_no_errors_have_an_axis_that_shows_none():
    samples = Samples(np.linspace(0.5, 1, 100), np.ones(100, dtype=bool))
    content = page([analyse("right", samples)])
    assert "Accept the most confident 80%, and none of them are wrong." in content
    assert "Accept all, and none are wrong." in content
    assert [tick.text for tick in svg.ticks(svg.risk_axis_limit([0.0, 0.0]))][-1] == "10%"


def test_the_slider_is_below_the_marker(watch):
    """Nine in ten answers are equally sure: the second of three thresholds accepts 95%, not a half."""
    confidence = np.repeat([0.9, 0.8, 0.1], [50, 900, 50])
    watched = watch(page([analyse("ties", Samples(confidence, np.arange(1000) % 3 > 0))]))
    slider, marker = watched.page.locator("#slider"), watched.page.locator("#dot")
    for wanted, coverage in ((0.0, 0.05), (0.4, 0.05), (0.6, 0.95), (1.0, 1.0)):
        slider.evaluate(SLIDE, wanted)
        assert float(slider.input_value()) == coverage
        assert marker.evaluate("node => node.style.left") == f"{100 * coverage:g}%"
        assert watched.text("coverage") == f"{100 * coverage:.2f}%"
    slider.focus()
    for key, coverage in (("ArrowLeft", 0.95), ("ArrowLeft", 0.05), ("PageUp", 0.95), ("Home", 0.05), ("End", 1.0)):
        watched.page.keyboard.press(key)
        assert float(slider.input_value()) == coverage


def test_dragging_in_the_chart(opened):
    opened.page.locator("#curve").scroll_into_view_if_needed()
    box = opened.page.locator("#curve svg").bounding_box()
    opened.page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 20)
    opened.page.mouse.down()
    assert opened.text("coverage") == "25.00%"
    opened.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 50, steps=4)
    opened.page.mouse.up()
    assert opened.text("accepted") == "240"
    check_readout(opened, opened.samples[0])


def test_choosing_the_other_model(opened):
    radios = opened.page.locator("input[name=model]")
    opened.page.locator("#slider").evaluate(SLIDE, 0.5)
    radios.nth(1).check()
    check_readout(opened, opened.samples[1])
    assert opened.text("accepted") == "150"
    radios.nth(0).check()
    check_readout(opened, opened.samples[0])


def test_all_seeds_come_first(watch):
    runs = {"baseline": [samples_of(0), samples_of(1)], "crl-softmax": [samples_of(2), samples_of(3)]}
    repeats, models = repeats_of(runs), [analyse(name, each[0]) for name, each in runs.items()]
    watched = watch(page(models, repeats=repeats, note="Seed 0 of 2."), width=360)
    section = watched.page.locator("#repeats")
    assert section.locator(".curve.seed").count() == 4 and section.locator(".curve.on").count() == 2
    summary, gap = repeats.summary("baseline", "aurc"), repeats.difference("crl-softmax", "aurc")
    text = section.inner_text()
    assert f"{1000 * summary.mean:.2f} ± {1000 * summary.std:.2f}" in text
    assert f"{1000 * gap.mean:+.2f} ± {1000 * gap.standard_error:.2f}" in text
    assert section.bounding_box()["y"] < watched.page.locator(".verdict").bounding_box()["y"]
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 360
    watched.page.locator("#slider").evaluate(SLIDE, 0.5)
    check_readout(watched, runs["baseline"][0])
    assert watched.complaints == []


def test_sorting_by_mouse_and_keyboard(opened):
    table = opened.page.locator("table.classes").first
    column = "rows => rows.map(row => Number(row.children[%d].dataset.value))"

    def values(place):
        return table.locator("tbody tr").evaluate_all(column % place)

    assert values(0) == list(range(len(NASTY)))
    for place in (1, 2, 5):
        button = table.locator("thead button").nth(place)
        button.click()
        assert values(place) == sorted(values(place))
        button.focus()
        opened.page.keyboard.press("Enter")
        assert values(place) == sorted(values(place), reverse=True)
        assert table.locator("thead th").nth(place).get_attribute("aria-sort") == "descending"
        assert table.locator("thead th[aria-sort]").count() == 1
    assert sorted(values(0)) == list(range(len(NASTY)))


def test_nasty_class_names_render_as_text(opened):
    cells = opened.page.locator("table.classes").first.locator("tbody th")
    shown = dict(
        zip(
            cells.evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))"),
            cells.all_inner_texts(),
            strict=True,
        )
    )
    for place, name in enumerate(NASTY):
        assert shown[place].split() == shortened(name).split()
    assert opened.page.locator("table.classes bdi").count() == 2 * len(NASTY)
    assert opened.page.locator(f"bdi[title='{NASTY[1]}']").count() >= 2
    assert opened.page.locator("h3 bdi").first.inner_text() == NASTY[0]
    mistakes = opened.page.locator(".mistakes").first.inner_text()
    assert any(name in mistakes for name in (NASTY[0], NASTY[3]))
    assert opened.dialogs == []


def test_no_label_hides_bars(watch):
    watched = watch(nasty_page()[0])
    labels, charts = (watched.page.locator(name).all() for name in (".side", ".bars svg"))
    assert len(labels) == 2 * len(charts) > 0
    for label in [one.bounding_box() for one in labels]:
        for chart in [one.bounding_box() for one in charts]:
            assert label["y"] + label["height"] <= chart["y"] or chart["y"] + chart["height"] <= label["y"]


@pytest.mark.parametrize("width", [1200, 390, 320])
def test_nothing_sticks_out(watch, width):
    watched = watch(nasty_page()[0], width)
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    assert watched.complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_long_names_stay_in_their_columns(watch, width):
    """Names without a place to break, in sentences, cards, choices and the headings of the table."""
    samples = samples_of()
    long = "_of_a_model_that_was_trained_on_everything" * 6
    names = [f"{k}{long}{k}.npz" for k in range(2)]
    models = measured([analyse(name, samples) for name in names], [samples] * 2, 50)
    watched = watch(page(models), width)
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    assert long not in watched.page.locator("main").inner_text()
    for head in watched.page.locator(".metrics thead th:visible").all():
        assert head.evaluate("node => node.scrollWidth <= node.clientWidth + 1")
    for named in watched.page.locator(".named:visible").all():
        dot, text = (named.locator(part).bounding_box() for part in (".swatch", "bdi"))
        assert abs(dot["y"] - text["y"]) < 16 and dot["x"] < text["x"]  # beside the first line


def test_paper_shows_what_the_screen_scrolls(watch):
    """On A4 within its margins: all rows of all tables, in full width, with colours and without controls."""
    watched = watch(grouped_page()[0], 718)
    watched.page.emulate_media(media="print")
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 718
    for region in watched.page.locator(".scroll").all():
        size = region.evaluate("node => [node.scrollWidth - node.clientWidth, node.scrollHeight - node.clientHeight]")
        assert max(size) <= 1, region.get_attribute("aria-label")
    swatch = watched.page.locator(".swatch").first
    assert swatch.evaluate("node => getComputedStyle(node).printColorAdjust") == "exact"
    assert watched.page.locator("input:visible").count() == 0


def test_paper_has_every_group(watch):
    confidence = np.linspace(0.5, 1, 600)
    model = {"confidence": confidence, "correct": np.arange(600) % 7 > 0}
    watched = watch(page(compare(model, by={"site": np.arange(600) % 40}, resamples=0).models), 718)
    watched.page.emulate_media(media="print")
    region, last = watched.page.locator("#groups .scroll"), watched.page.locator("#groups tbody tr").last
    bottoms = [box["y"] + box["height"] for box in (region.bounding_box(), last.bounding_box())]
    assert bottoms[0] >= bottoms[1]


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return np.dot(linear, (0.2126, 0.7152, 0.0722))


def contrast(one, other):
    """As WCAG 2 defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_curves_have_enough_contrast(scheme):
    """WCAG AA: 4.5 for text, 3 for what a chart needs."""
    style = re.findall(r":root \{(.*?)\}", (FOLDER / "page.css").read_text(), flags=re.DOTALL)[scheme]
    colour = dict(re.findall(r"--([\w-]+): (#\w{6});", style))
    for back in ("paper", "card"):
        for name in ("ink", "soft", "accent", "good", "bad"):
            assert contrast(colour[name], colour[back]) >= 4.5, (name, back)
        for number in range(len(COLOURS)):
            assert contrast(colour[f"c{number}"], colour[back]) >= 3, (number, back)
    for name in ("good", "bad"):
        assert contrast(colour[name], colour[f"{name}-back"]) >= 4.5


@pytest.mark.parametrize("width", [400, 320])
def test_all_numbers_are_seen_on_a_phone(watch, width):
    """Each under the name of what it is about, and no column outside of its box."""
    samples = samples_of()
    examined = measured(
        [analyse(name, samples) for name in ("first model.csv", "second model.csv")], [samples] * 2, 50
    )
    watched = watch(page(examined), width)
    box = watched.page.locator(".scroll:has(.metrics)").bounding_box()
    cells = watched.page.locator(".metrics td:visible")
    metrics = examined[1].evaluation.metrics.values()
    defined = sum(value is not None for value in metrics)  # what has no difference has no place for it
    assert cells.count() == 2 * len(metrics) + defined < 3 * len(metrics)
    for cell in cells.all():
        place = cell.bounding_box()
        assert box["x"] <= place["x"] and place["x"] + place["width"] <= box["x"] + box["width"]
    heads = cells.evaluate_all("cells => cells.map(cell => getComputedStyle(cell, '::before').content)")
    assert heads[:3] == ['"first model.csv"', '"second model.csv"', '"difference to the first"']
    assert watched.page.title() == "first model.csv, second model.csv: Which answers can be trusted?"


def test_the_page_of_a_run_shows_its_mistakes(watch, tmp_path, capsys, command):
    command("train", "--epochs", "2", "--batch-size", "64", "--device", "cpu", "--out", tmp_path / "run")
    file = str(tmp_path / "run" / "predictions" / "test.safetensors")
    command("evaluate", file, "--report", tmp_path / "r.html", "--resamples", "100")
    assert f"report: {tmp_path / 'r.html'}" in capsys.readouterr().out
    watched = watch(tmp_path / "r.html")
    images = watched.page.locator(".mistakes img")
    assert images.count() == 12
    assert images.first.evaluate("image => image.complete && image.naturalWidth") == 8
    assert (watched.network(), watched.complaints) == ([], [])


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.scripts, self._inside = [], [], False

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = False

    def handle_data(self, data):
        if self._inside:
            self.scripts[-1] += data


def test_names_of_runs_have_the_colours_of_their_methods():
    names = ["digits-small-crl-softmax-seed0", "baseline.csv", "ensemble-crl-softmax of 3", "baselined"]
    assert colour_numbers(names) == [1, 0, colours.METHOD_NAMES.index("ensemble-crl-softmax"), 2]
    many = colour_numbers([*colours.METHOD_NAMES[:11], "x", "y", "z"])
    assert many == [*range(14)]


def test_page_and_figures_have_the_same_colours():
    style = (FOLDER / "page.css").read_text()
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    assert tuple(re.findall(r"--c\d+: (#\w+);", light)) == COLOURS
    assert len(set(re.findall(r"--c\d+: (#\w+);", dark))) == len(COLOURS)
    assert all(f".c{place} {{ --c: var(--c{place}); }}" in style for place in range(len(COLOURS)))


def test_each_method_strategy_and_detector_has_its_colour():
    # Rarely drawn: the colour of the plain method.
    shared = {
        "crl-entropy-stretched": "crl-entropy", "crl-margin-stretched": "crl-margin",
        "aleatoric-mc-mean-logits": "aleatoric-mc",
    }  # fmt: skip
    named = [name for name in METHODS if name not in shared]
    assert {*colours.METHOD_NAMES} >= {*named, *(f"ensemble-{name}" for name in named if "crl" in name)}
    for name, plain in shared.items():
        assert colours_of([name]) == colours_of([plain])
        assert len({*colours_of([plain, name])}) == 2
    assert {*colours.STRATEGY_NAMES} == {*STRATEGIES}
    assert {*colours.DETECTOR_NAMES} == {*DETECTORS}
    for names in (colours.METHOD_NAMES, colours.STRATEGY_NAMES, colours.DETECTOR_NAMES):
        assert len({*colours_of(names)}) == len(names)
        assert colours_of(names[::-1])[::-1] == colours_of(names)
        assert colours_of([*names[1:], "other"])[:-1] == colours_of(names)[1:]
    many = [f"run {k}" for k in range(30)]
    assert colours_of(many)[: len(COLOURS) + 1] == [*COLOURS, COLOURS[0]]


def test_without_a_browser_the_markup_holds_together():
    content, _ = nasty_page()
    tags = Tags()
    tags.feed(content)
    assert [tag for tag, _ in tags.seen].count("script") == 2
    assert not any(name.startswith("on") for _, attributes in tags.seen for name in attributes)
    assert not [
        1
        for _, attributes in tags.seen
        for key in ("src", "href")
        if not attributes.get(key, "data:").startswith("data:")
    ]
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|https?://", content)
    points = json.loads(tags.scripts[0])["models"]
    assert points[0]["name"] == NASTY[0]
    assert [len(model["threshold"]) for model in points] == [400, 300]


def test_a_million_predictions_fit_in_the_page():
    rng = np.random.default_rng(0)
    confidence, label = rng.random(10**6), rng.integers(0, 1000, 10**6)
    correct = rng.random(10**6) < confidence
    samples = Samples(confidence, correct, confidence, label=label, prediction=np.where(correct, label, 0))
    examined = analyse("big", samples, "", [f"a class with a name of ordinary length {k}" for k in range(1000)])
    examined = with_images(examined, {one.row: np.zeros((32, 32, 3), dtype=np.uint8) for one in examined.mistakes})
    content = page([examined, examined])
    assert len(content.encode()) < 1_500_000
    tags = Tags()
    tags.feed(content)
    points = json.loads(tags.scripts[0])["models"][0]
    assert 990 <= len(points["threshold"]) <= 1001
    for place in (0, 500, -1):
        accepted = confidence >= points["threshold"][place]
        assert (points["accepted"][place], points["errors"][place]) == (accepted.sum(), (accepted & ~correct).sum())


@pytest.mark.parametrize("samples", [
    Samples(np.array([3.0]), np.array([True])),
    Samples(np.array([-1e9, 1e9, 5.0]), np.array([False, False, False])),
    Samples(np.full(50, 0.5), np.arange(50) % 2 == 0, np.full(50, 0.5)),
])  # fmt: skip
def test_odd_predictions_have_a_page_too(samples):
    content = page([analyse("odd", samples)])
    few = "Accept the most confident 67%, and 100.0% of them are wrong."
    assert (few if len(samples) == 3 else "All have the same confidence, so no threshold can separate") in content
    assert "nan" not in re.sub(r"<(style|script).*?</\1>", "", content, flags=re.DOTALL).lower()


def test_metrics_that_are_undefined_for_one_reason_share_a_line():
    """None is wrong and there are no probabilities: two reasons for six metrics."""
    found = analyse("right", Samples(np.array([0.5, 0.9]), np.ones(2, dtype=bool), np.array([0.5, 0.9]))).evaluation
    assert len(found.undefined) == 6
    lines = footnotes([("right", found)])
    assert lines == [
        "NLL ×10, Brier % undefined: needs the probabilities of all classes and the labels",
        "NAURC %, AUPR-Err %, FPR-95%-TPR %, AUROC % undefined: needs right and wrong predictions, but none is wrong",
    ]


@pytest.mark.parametrize("count", [1, 2])
def test_differences_are_explained_only_where_there_are_some(count):
    table, label = np.random.default_rng(0).dirichlet(np.ones(3), 60), np.arange(60) % 3
    models = compare(*[{"probabilities": table, "label": label}] * 2, resamples=100).models
    content = page(models[:count])
    assert "Student's t" in content
    assert ("Differences use the same resamples" in content) is (count == 2)


def test_the_verdict_says_what_was_counted():
    confidence = np.linspace(1, 0, 1000)
    correct = np.ones(1000, dtype=bool)
    correct[[500, 900, 950]] = False
    samples = Samples(confidence, correct)
    examined = analyse("model", samples)
    right, key, everything, area = verdict(examined)
    assert right == "Accuracy is 99.7% over 1,000 predictions."
    assert key == "Accept the most confident 80%, and 0.1% of them are wrong."
    assert everything == "Accept all, and 0.3% are wrong."
    assert area == f"AURC ×10³ is {1000 * examined.evaluation.metrics['aurc']:.2f}."
    assert [percent(share) for share in (0, 0.0004, 0.9999, 1)] == ["0.0%", "0.040%", "99.990%", "100.0%"]
    assert [percent(share, 0) for share in (0.004, 0.5, 2e-7)] == ["0.40%", "50%", "under 0.0001%"]
    pair = measured([examined, examined], [samples] * 2, 99)
    assert comparisons(pair)[0].startswith("No clear difference in AURC ×10³ between model and model: +0.00")
    correct[600::10] = False
    samples, worse = Samples(confidence, correct), Samples(confidence[::-1].copy(), correct)
    pair = measured([analyse("model", samples), analyse("other", worse)], [samples, worse], 199)
    area, separation = comparisons(pair)
    assert area.startswith("other has more errors among the accepted than model: its AURC ×10³ differs by +")
    assert separation.startswith("other separates right from wrong worse than model: its AUROC % differs by -")


@pytest.mark.parametrize(("confidence", "weight", "sentence"), [
    ([0.9, 0.9, 0.8, 0.8, 0.8], None, "Accept the most confident 40%, and 50.0% of them are wrong."),
    ([0.9, 0.8, 0.8, 0.8, 0.8], [0, 1, 1, 1, 1], "All have the same confidence, so no threshold can separate"),
    (np.append(np.linspace(1, 0.9, 399), 0.5), None, "Accept the most confident 80%, and"),
    (np.append(np.full(399, 0.9), 0.5), None, "Accept the most confident 99.75%, and"),
])  # fmt: skip
def test_the_verdict_rejects_something_if_a_threshold_can(confidence, weight, sentence):
    samples = Samples(np.asarray(confidence), np.arange(len(confidence)) % 2 == 0)
    samples = samples if weight is None else samples.weighted(weight)
    assert verdict(analyse("model", samples))[1].startswith(sentence)


@pytest.mark.parametrize("resamples", [0, 199])
@pytest.mark.parametrize(("skill", "is_inverted"), [(1.0, False), (0.0, False), (-1.0, True), (-100.0, True)])
def test_the_verdict_notices_an_uncertainty(skill, is_inverted, resamples):
    """A score that falls with being right, down to a perfect separation, which has no interval."""
    rng = np.random.default_rng(0)
    correct = rng.random(300) < 0.8
    samples = Samples(rng.normal(size=300) + skill * correct, correct)
    (model,) = measured([analyse("model", samples)], [samples], resamples)
    assert (model.intervals.get("auroc") is None) == (not resamples or skill == -100)
    said = [sentence for sentence in verdict(model) if "wrong more often than others" in sentence]
    assert len(said) == is_inverted
    assert ('<p class="lead worse">Confident answers are wrong' in page([model])) == is_inverted
    assert page([model]).count("wrong more often than others") == is_inverted
    if is_inverted:
        assert f"(AUROC % is {100 * model.evaluation.metrics['auroc']:.2f}" in said[0]


def test_without_an_interval_an_uncertainty_is_judged_as_mann_and_whitney_do():
    """Against scipy's U test: one side of a two-sided level of 5%."""
    rng = np.random.default_rng(1)
    verdicts = set()
    for shift in np.linspace(0, 1, 21):
        correct = np.arange(80) % 4 > 0
        confidence = rng.normal(size=80) - shift * correct
        test = mannwhitneyu(confidence[correct], confidence[~correct], alternative="less", use_continuity=False)
        said = any("an uncertainty" in one for one in verdict(analyse("model", Samples(confidence, correct))))
        assert said == (test.pvalue < 0.025)
        verdicts.add(said)
    assert verdicts == {True, False}


def test_pictures_become_small_pngs():
    assert data_uri(np.zeros((8, 8, 1), dtype=np.uint8)).startswith("data:image/png;base64,")
    assert len(data_uri(np.zeros((500, 400, 3), dtype=np.uint8))) < 2000


def grouped_page(num_groups=5, *, weighted=False):
    """Two models, two columns of groups, and a group that is too small to say."""
    rng = np.random.default_rng(0)
    size = 900
    site = np.array([NASTY[number % len(NASTY)] for number in rng.integers(0, num_groups, size)], dtype=object)
    site[:4] = "tiny"
    label = rng.integers(0, 3, size)
    models = []
    for seed in (1, 2):
        confidence = np.random.default_rng(seed).uniform(0.3, 1, size)
        right = np.random.default_rng(seed + 9).random(size) < confidence * np.where(site == NASTY[3], 0.7, 1)
        models.append(
            {"confidence": confidence, "label": label, "prediction": np.where(right, label, (label + 1) % 3)}
        )
    by = {"site": site, "age": rng.integers(0, 4, size) * 10}
    result = compare(*models, by=by, sample_weight=rng.random(size) + 0.1 if weighted else None, resamples=100)
    return page(list(result.models)), result


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    content, result = grouped_page()
    path = tmp_path_factory.mktemp("groups") / "report.html"
    path.write_text(content, encoding="utf-8")
    return path, result


CUT_OFF = """() => {
  const width = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth > width) found.push("the page scrolls sideways");
  for (const node of document.querySelectorAll("main *")) {
    if (node.closest(".sr") || node.closest("svg")) continue;
    const box = node.getBoundingClientRect();
    const inner = node.closest("#groups, .metrics");
    if (inner && node.matches("td, th, small, p, b, bdi, h3") && box.width &&
        (box.right > width + 1
         || node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== "inline"))
      found.push(node.tagName + " " + node.textContent.trim().slice(0, 60));
  }
  for (const region of document.querySelectorAll("#groups .scroll, .scroll:has(.metrics)"))
    if (region.scrollWidth > region.clientWidth + 1) found.push("scrolls: " + region.getAttribute("aria-label"));
  return found;
}"""


@pytest.mark.parametrize("width", [360, 500, 1280])
def test_nothing_of_groups_and_p_values_is_cut_off(watch, grouped, width):
    watched = watch(grouped[0], width)
    assert watched.page.evaluate(CUT_OFF) == []
    assert watched.complaints == [] and watched.network() == [] and watched.dialogs == []
    gaps = watched.page.locator(".metrics td:has(.even), .metrics td:has(.better), .metrics td:has(.worse)")
    assert gaps.count() == 11 and all("p = " in text for text in gaps.all_inner_texts())


def test_groups_on_the_page_are_those_of_the_comparison(watch, grouped):
    path, result = grouped
    watched = watch(path, 1280)
    parts = watched.page.locator("#groups > section")
    assert parts.count() == 4
    assert [parts.nth(k).get_attribute("aria-label")[:14] for k in range(4)] == [
        "groups by site",
        "groups by age ",
    ] * 2
    grouping = result.groups[0]["site"]
    rows = parts.nth(0).locator("tbody tr")
    assert rows.count() == len(grouping.groups) == 6
    for row, group in zip(rows.all(), grouping.by_risk, strict=True):
        cells = row.locator("td").all_inner_texts()
        assert cells[0] == f"{group.evaluation.num_samples:,}"
        assert cells[2].split("\n")[0] == f"{100 * group.acceptance.risk:.2f}%"
        assert cells[3].split("\n")[0] == f"{100 * group.evaluation.metrics['acc']:.2f}"
    charts = parts.nth(0).locator(".multiples svg[role=img]")
    assert charts.count() == 6
    assert all("risk-coverage curve of site" in chart.get_attribute("aria-label") for chart in charts.all())
    worst = parts.nth(0).locator(".multiples li").first.inner_text()
    assert "worst" in worst and f"{100 * grouping.worst.acceptance.risk:.2f}%" in worst
    assert "too small to say" in parts.nth(0).locator(".multiples li").last.inner_text()
    # The table can be reached and sorted with the keyboard.
    button = parts.nth(0).locator("thead button").nth(1)
    button.focus()
    watched.page.keyboard.press("Enter")
    numbers = [int(text) for text in parts.nth(0).locator("tbody td:nth-of-type(1)").all_inner_texts()]
    assert numbers == sorted(numbers)
    assert parts.nth(0).locator("thead th").nth(1).get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize(("num_groups", "scrolls"), [(5, False), (40, True)])
def test_only_long_tables_scroll(watch, num_groups, scrolls):
    """Five groups with a long name would not fit the height of a table that scrolls."""
    confidence, group = np.linspace(0.5, 1, 600), np.arange(600) % num_groups
    names = np.array([f"a group with a long name that takes several lines of its cell {k}" for k in range(40)])
    model = {"confidence": confidence, "correct": np.arange(600) % 7 > 0}
    watched = watch(page(compare(model, by={"site": names[group]}, resamples=0).models), 1280)
    region = watched.page.locator("#groups .scroll")
    assert region.evaluate("node => node.scrollHeight > node.clientHeight + 1") is scrolls


def test_histograms_of_many_models_fill_the_space_below_the_diagram(watch):
    rng = np.random.default_rng(0)
    confidence = rng.random(200)
    models = [analyse(f"model {k}", Samples(confidence, rng.random(200) < confidence, confidence)) for k in range(5)]
    watched = watch(page(models), 1280)
    boxes = [part.bounding_box() for part in watched.page.locator(".histograms > div").all()]
    diagram, *histograms = boxes
    assert len(histograms) == 5
    beside, below = histograms[:2], histograms[2:]
    assert all(box["x"] > diagram["x"] for box in beside)
    assert below[0]["x"] == diagram["x"] and below[1]["x"] == beside[0]["x"]
    assert 0 < below[0]["y"] - (diagram["y"] + diagram["height"]) < 40


def test_a_page_with_weights_says_that_it_has_no_intervals():
    content, _ = grouped_page(weighted=True)
    assert "numbers of answers are not, and there are no intervals." in content
    assert "With sample weights there are no intervals." in content
    assert "95% interval" not in content and "too small to say" not in content
    assert "are not compared pair by pair (rows have weights)" in content


def test_the_slider_shows_shares_of_weight(watch, tmp_path):
    content, result = grouped_page(weighted=True)
    path = tmp_path / "report.html"
    path.write_text(content, encoding="utf-8")
    watched = watch(path, 1280)
    curve = result.models[0].curve
    watched.page.locator("#slider").evaluate(SLIDE, 0.5)
    threshold = float(watched.page.locator("#threshold").get_attribute("title").removeprefix("exactly "))
    samples = result.samples[0]
    accepted = samples.confidence >= threshold
    weight = samples.weight
    assert watched.text("accepted") == f"{accepted.sum():,}"
    assert watched.text("coverage") == f"{100 * weight[accepted].sum() / weight.sum():.2f}%"
    assert watched.text("risk") == f"{100 * weight[accepted & ~samples.correct].sum() / weight[accepted].sum():.2f}%"
    assert abs(weight[accepted].sum() / weight.sum() - 0.5) < 2 / len(curve.threshold)
    check_costs(watched, samples, (2, 10), sample_weight=weight)

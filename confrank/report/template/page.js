"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const slider = at("slider"), costSlider = at("cost"), plot = at("curve"), curves = plot.querySelectorAll(".curve");
  at("costs").hidden = false;
  const count = (value) => value.toLocaleString("en-US");
  // Two decimals, and two significant digits of what is nearly nothing or nearly all.
  const share = (value) => {
    const nearest = 100 * Math.min(value, 1 - value), isTiny = nearest > 1e-10 && nearest < 0.01;
    return (100 * value).toFixed(isTiny ? Math.min(6, 1 - Math.floor(Math.log10(nearest) + 1e-9)) : 2) + "%";
  };
  // With sample weights, coverage and error rate are shares of weight, which the page lists.
  const coverageAt = (model, i) => model.coverage ? model.coverage[i] : model.accepted[i] / model.n;
  const riskAt = (model, i) => model.risk ? model.risk[i] : model.errors[i] / model.accepted[i];
  let chosen = 0, point = 0;

  // The slider shows a coverage, below the marker in the chart.
  function show(position, announce) {
    const model = data.models[chosen], i = point = position;
    const accepted = model.accepted[i], errors = model.errors[i];
    const coverage = coverageAt(model, i), risk = riskAt(model, i);
    slider.value = coverage;
    at("threshold").textContent = String(Number(model.threshold[i].toPrecision(6)));
    at("threshold").title = "exactly " + model.threshold[i];
    at("coverage").textContent = share(coverage);
    at("accepted").textContent = count(accepted);
    at("errors").textContent = count(errors);
    at("risk").textContent = share(risk);
    at("accepted-right").textContent = count(accepted - errors);
    at("accepted-wrong").textContent = count(errors);
    at("rejected-right").textContent = count(model.n - accepted - (model.wrong - errors));
    at("rejected-wrong").textContent = count(model.wrong - errors);
    at("rule").style.left = at("dot").style.left = 100 * coverage + "%";
    at("dot").style.bottom = 100 * Math.min(1, risk / data.limit) + "%";
    const words = share(coverage) + " accepted, error rate " + share(risk);
    slider.setAttribute("aria-valuetext", words);
    if (announce) at("announce").textContent = words;
  }

  // The cheapest threshold if an error costs `ratio` rejections, and its cost; -1 if rejecting everything is cheapest.
  // The page lists every threshold that is cheapest for some ratio, so the result is exact. Of equal costs, the lowest.
  function cheapest(model, ratio) {
    const { accepted, wrong, total } = model.cheapest;
    const costs = wrong.map((errors, i) => ratio * errors + (total - accepted[i]));
    const least = Math.min(total, ...costs) + 1e-12 * total * Math.max(ratio, 1);
    for (let i = costs.length - 1; i >= 0; i--) if (costs[i] <= least) return [i, costs[i] / total];
    return [-1, 1];
  }

  function showCost(announce) {
    const model = data.models[chosen], ratio = data.cost_ratios[costSlider.value];
    const [i, cost] = cheapest(model, ratio), { threshold, accepted, wrong, total } = model.cheapest;
    const coverage = i < 0 ? 0 : accepted[i] / total, height = (value) => Math.min(2, value / data.cost_limit);
    const number = (value) => String(Number(value.toPrecision(6)));
    // The last threshold accepts everything here; new confidences may be lower, and are accepted too.
    const rule = i < 0 ? "reject all" : i === threshold.length - 1 ? "accept all" : null;
    at("cost-threshold").textContent = rule || number(threshold[i]);
    at("cost-threshold").title = rule ? "" : "exactly " + threshold[i];
    at("cost-coverage").textContent = share(coverage);
    at("cost-value").textContent = number(cost);
    at("cost-value").title = "exactly " + cost;
    at("cost-all").textContent = number(ratio * wrong[wrong.length - 1] / total);
    at("cost-flag").textContent = ratio;
    const words = at("cost-ratio").textContent = count(ratio) + (ratio === 1 ? " rejection" : " rejections");
    const points = model.accepted.map((_, k) => {
      const covered = coverageAt(model, k);
      return 1000 * covered + " " + (1000 - 1000 * height(ratio * covered * riskAt(model, k) + 1 - covered));
    });
    at("cost-curve").setAttribute("d", "M" + ["0 " + (1000 - 1000 * height(1)), ...points].join("L"));
    at("cost-curve").setAttribute("class", "curve on c" + model.colour);
    at("cost-dot").className = "c" + model.colour;
    at("cost-dot").style.left = 100 * coverage + "%";
    at("cost-dot").style.bottom = 100 * height(cost) + "%";
    costSlider.setAttribute("aria-valuetext", "an error costs " + words);
    if (announce) at("announce").textContent = "cost " + number(cost) + ", " + share(coverage) + " accepted";
  }

  function choose(index, position) {
    chosen = index;
    at("dot").className = "c" + data.models[index].colour;
    curves.forEach((curve, number) => curve.classList.toggle("on", number === index));
    show(position, false);
    showCost(false);
  }

  // The point whose coverage is nearest to this share.
  function nearest(model, coverage) {
    let low = 0, high = model.accepted.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (coverageAt(model, middle) >= coverage - 1e-12) high = middle; else low = middle + 1;
    }
    const closer = low && coverage - coverageAt(model, low - 1) < coverageAt(model, low) - coverage - 1e-12;
    return closer ? low - 1 : low;
  }

  function drag(event) {
    const box = plot.getBoundingClientRect();
    show(nearest(data.models[chosen], Math.min(1, Math.max(0, (event.clientX - box.left) / box.width))), false);
  }

  // A key moves to the next threshold however far that is, or by a tenth of the range.
  function press(event) {
    const model = data.models[chosen], last = model.accepted.length - 1;
    const tenth = (way) => nearest(model, coverageAt(model, point) + way / 10);
    const targets = {
      ArrowLeft: point - 1, ArrowDown: point - 1, ArrowRight: point + 1, ArrowUp: point + 1, Home: 0, End: last,
      PageDown: Math.min(point - 1, tenth(-1)), PageUp: Math.max(point + 1, tenth(1)),
    };
    if (!(event.key in targets)) return;
    event.preventDefault();
    show(Math.min(last, Math.max(0, targets[event.key])), true);
  }

  function sort(button) {
    const head = button.closest("th"), body = button.closest("table").tBodies[0];
    const column = [...head.parentNode.children].indexOf(head);
    const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const value = (row) => Number(row.children[column].dataset.value);
    body.append(...[...body.rows].sort((a, b) => sign * (value(a) - value(b))));
  }

  slider.addEventListener("input", () => show(nearest(data.models[chosen], Number(slider.value)), false));
  slider.addEventListener("change", () => show(point, true));
  slider.addEventListener("keydown", press);
  costSlider.addEventListener("input", () => showCost(false));
  costSlider.addEventListener("change", () => showCost(true));
  plot.addEventListener("pointerdown", (event) => { plot.setPointerCapture(event.pointerId); drag(event); });
  plot.addEventListener("pointermove", (event) => { if (event.buttons) drag(event); });
  for (const radio of document.querySelectorAll("input[name=model]")) {
    radio.addEventListener("change", () => {
      const model = data.models[radio.value];
      const before = coverageAt(data.models[chosen], point);
      choose(Number(radio.value), nearest(model, before));
    });
  }
  for (const button of document.querySelectorAll(".sortable button")) button.addEventListener("click", () => sort(button));
  const checked = document.querySelector("input[name=model]:checked");
  const first = checked ? Number(checked.value) : 0;
  choose(first, data.models[first].start);
})();

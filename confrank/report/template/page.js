"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const slider = at("slider"), plot = at("curve"), curves = plot.querySelectorAll(".curve");
  const count = (value) => value.toLocaleString("en-US");
  const share = (value) => (100 * value).toFixed(2) + "%";
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

  function choose(index, position) {
    chosen = index;
    at("dot").className = "c" + data.models[index].colour;
    curves.forEach((curve, number) => curve.classList.toggle("on", number === index));
    show(position, false);
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

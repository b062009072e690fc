"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const slider = at("slider"), plot = at("curve"), curves = plot.querySelectorAll(".curve");
  const whole = (value) => value.toLocaleString("en-US");
  const share = (value) => (100 * value).toFixed(2) + "%";
  let chosen = 0;

  function show(announce) {
    const model = data.models[chosen], i = Number(slider.value);
    const accepted = model.accepted[i], errors = model.errors[i];
    const coverage = accepted / model.n, risk = errors / accepted;
    at("threshold").textContent = String(Number(model.threshold[i].toPrecision(6)));
    at("threshold").title = "exactly " + model.threshold[i];
    at("coverage").textContent = share(coverage);
    at("accepted").textContent = whole(accepted);
    at("errors").textContent = whole(errors);
    at("risk").textContent = share(risk);
    at("accepted-right").textContent = whole(accepted - errors);
    at("accepted-wrong").textContent = whole(errors);
    at("rejected-right").textContent = whole(model.n - accepted - (model.wrong - errors));
    at("rejected-wrong").textContent = whole(model.wrong - errors);
    at("rule").style.left = at("dot").style.left = 100 * coverage + "%";
    at("dot").style.bottom = 100 * Math.min(1, risk / data.limit) + "%";
    const words = share(coverage) + " accepted, " + share(risk) + " errors left";
    slider.setAttribute("aria-valuetext", words);
    if (announce) at("announce").textContent = words;
  }

  function choose(index, position) {
    chosen = index;
    const model = data.models[index];
    slider.max = model.threshold.length - 1;
    slider.value = position;
    at("dot").className = "c" + (index % 8);
    curves.forEach((curve, place) => curve.classList.toggle("on", place === index));
    show(false);
  }

  // The point whose coverage is nearest to this share.
  function nearest(model, coverage) {
    const wanted = coverage * model.n;
    let low = 0, high = model.accepted.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (model.accepted[middle] >= wanted) high = middle; else low = middle + 1;
    }
    const closer = low && wanted - model.accepted[low - 1] < model.accepted[low] - wanted;
    return closer ? low - 1 : low;
  }

  function drag(event) {
    const box = plot.getBoundingClientRect();
    slider.value = nearest(data.models[chosen], Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
    show(false);
  }

  function sort(button) {
    const head = button.closest("th"), body = button.closest("table").tBodies[0];
    const place = [...head.parentNode.children].indexOf(head);
    const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const value = (row) => Number(row.children[place].dataset.value);
    body.append(...[...body.rows].sort((a, b) => sign * (value(a) - value(b))));
  }

  slider.addEventListener("input", () => show(false));
  slider.addEventListener("change", () => show(true));
  plot.addEventListener("pointerdown", (event) => { plot.setPointerCapture(event.pointerId); drag(event); });
  plot.addEventListener("pointermove", (event) => { if (event.buttons) drag(event); });
  for (const radio of document.querySelectorAll("input[name=model]")) {
    radio.addEventListener("change", () => {
      const model = data.models[radio.value];
      const before = data.models[chosen].accepted[slider.value] / data.models[chosen].n;
      choose(Number(radio.value), nearest(model, before));
    });
  }
  for (const button of document.querySelectorAll(".sortable button")) button.addEventListener("click", () => sort(button));
  const checked = document.querySelector("input[name=model]:checked");
  const first = checked ? Number(checked.value) : 0;
  choose(first, data.models[first].start);
})();

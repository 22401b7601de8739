"use strict";
(() => {
  const data = JSON.parse(document.getElementById("numbers").textContent);
  const range = document.getElementById("size");
  const exact = document.getElementById("exact");
  const spoken = document.getElementById("spoken");
  const all = (selector) => Array.from(document.querySelectorAll(selector));
  const thousands = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");

  // The same rule as `percent` in tally.py: half up, 0 and 100 only for none and all.
  const percent = (part, whole) => {
    if (!whole) return "-";
    let tenths = Math.floor((2000 * part + whole) / (2 * whole));
    if (part > 0 && part < whole) tenths = Math.min(Math.max(tenths, 1), 999);
    return `${Math.floor(tenths / 10)}.${tenths % 10} %`;
  };

  // runs: radius, count, radius, count, ...; at(s) is the number of rows with a radius of s or more.
  const radii = ([rows, runs]) => {
    const atLeast = new Array(data.domain + 2).fill(0);
    for (let i = 0; i < runs.length; i += 2) atLeast[runs[i]] += runs[i + 1];
    for (let s = data.domain; s >= 0; s -= 1) atLeast[s] += atLeast[s + 1];
    return { rows, at: (size) => atLeast[size] };
  };
  const models = data.models.map((model) => ({
    kept: radii(model.kept),
    fixed: radii(model.fixed),
    classes: model.classes.map(radii),
    training: model.training,
  }));

  const words = {
    unit: (size) => (size === 1 ? data.unit.singular : data.unit.plural),
    count: (size) => `${thousands(size)} ${words.unit(size)}`,
    case: (size) =>
      size === 0 ? "Without an attack" : `If any ${thousands(size)} ${size === 1 ? `${data.unit.one} is` : `${data.unit.many} are`} ${data.unit.deed}`,
    "kept-share": (size, model, kept) => percent(kept.at(size), kept.rows),
    "kept-rows": (size, model, kept) => thousands(kept.at(size)),
    "kept-lost": (size, model, kept) => thousands(kept.at(0) - kept.at(size)),
    "fixed-share": (size, { fixed }) => percent(fixed.at(size), fixed.rows),
    "open-rows": (size, { fixed }) => thousands(fixed.rows - fixed.at(size)),
    "wrong-fixed": (size, { fixed, kept }) => thousands(fixed.at(size) - kept.at(size)),
    budget: (size, { training }) => percent(size, training),
  };
  const keptOf = (element) => {
    const model = models[element.dataset.model ?? element.dataset.bar];
    return element.dataset.class === undefined ? model?.kept : model.classes[element.dataset.class];
  };

  const shows = all("[data-show]").map((element) => {
    const say = words[element.dataset.show];
    const model = models[element.dataset.model];
    const kept = keptOf(element);
    return (size) => { element.textContent = say(size, model, kept); };
  });
  const bars = all("[data-bar]").map((element) => {
    const kept = keptOf(element);
    return (size) => element.setAttribute("width", `${kept.rows ? (100 * kept.at(size)) / kept.rows : 0}%`);
  });
  const cursors = all("[data-cursor]");
  const held = all("[data-held]");
  const dots = all("[data-dot]");
  const cards = all(".card").map((card) => {
    const { radius, moves, members } = card.dataset;
    const state = card.querySelector("[data-state]");
    const votes = Array.from(card.querySelectorAll("[data-solid]"));
    const ghosts = Array.from(card.querySelectorAll("[data-ghost]"));
    const most = Number(votes[0].dataset.count);
    return (size) => {
      card.classList.toggle("open", size > radius);
      state.textContent = size > radius ? "Might be turned" : "Holds, proved";
      const moved = Math.min(size * moves, most);
      votes.forEach((solid, i) => {
        const count = Number(solid.dataset.count);
        const { role } = solid.dataset;
        solid.setAttribute("width", `${(100 * (role === "winner" ? count - moved : count)) / members}%`);
        ghosts[i].setAttribute("width", `${(100 * (role === "rival" ? count + moved : count)) / members}%`);
      });
    };
  });

  let later;
  const update = (asked, source) => {
    const size = Math.min(data.domain, Math.max(0, Math.round(Number(asked) || 0)));
    range.value = size;
    range.setAttribute("aria-valuetext", words.count(size));
    if (source !== exact) exact.value = size;
    const x = `${(100 * size) / data.domain}%`;
    for (const line of cursors) { line.setAttribute("x1", x); line.setAttribute("x2", x); }
    for (const clip of held) clip.setAttribute("x", x);
    dots.forEach((dot, i) => {
      const { kept } = models[i];
      dot.setAttribute("cx", x);
      dot.setAttribute("cy", `${100 * (1 - kept.at(size) / kept.rows)}%`);
    });
    for (const change of [...shows, ...bars, ...cards]) change(size);
    // A screen reader hears the outcome once the slider rests, not every step on the way.
    clearTimeout(later);
    later = setTimeout(() => {
      spoken.textContent = `${words.count(size)}: ${data.models
        .map((model, i) => `${model.name} ${percent(models[i].kept.at(size), models[i].kept.rows)}`)
        .join(", ")} ${data.kept}.`;
    }, 400);
  };

  range.addEventListener("input", () => update(range.value, range));
  exact.addEventListener("input", () => update(exact.value, exact));
  exact.addEventListener("change", () => update(exact.value));
  document.getElementById("panel").addEventListener("submit", (event) => event.preventDefault());
  for (const button of all("[data-size]")) {
    button.addEventListener("click", () => update(button.dataset.size));
  }
  for (const chart of all(".pick")) {
    const pick = (event) => {
      const box = chart.getBoundingClientRect();
      update(Math.floor((data.domain * (event.clientX - box.left)) / box.width));
    };
    chart.addEventListener("click", pick);
    chart.addEventListener("pointermove", (event) => { if (event.buttons & 1) pick(event); });
  }
  window.addEventListener("beforeprint", () => {
    for (const details of all("details")) details.open = true;
  });
  document.documentElement.classList.add("live");
  // A browser that restores a form after reloading keeps the slider's old place.
  update(range.value);
})();

"use strict";
function bringToLife(timeline) {
  const figure = timeline.querySelector(".tp-figure");
  const scroller = timeline.querySelector(".scroll");
  const slider = timeline.querySelector(".slider");
  const ticks = [...figure.querySelectorAll(".tick")];
  const groups = [...figure.querySelectorAll(".held-by")].map((node) => ({
    bars: [...node.querySelectorAll(".bar")].map((bar) => ({
      node: bar, first: Number(bar.dataset.first), last: Number(bar.dataset.last), value: bar.dataset.value,
    })),
    list: timeline.querySelector('[data-live="' + node.dataset.place + '"]'),
  }));
  const titles = [...figure.querySelectorAll(".title")];
  let current = -1;

  function chip(text, kind) {
    const made = document.createElement("span");
    made.className = kind;
    made.textContent = text;
    return made;
  }

  function show(number) {
    current = Math.max(0, Math.min(ticks.length - 1, number));
    const tick = ticks[current];
    const x = Number(tick.dataset.x);
    const text = tick.querySelector("text");
    ticks.forEach((each) => each.classList.toggle("now", each === tick));
    const band = figure.querySelector(".now-band");
    band.setAttribute("x", x);
    band.setAttribute("width", tick.dataset.width);
    const line = figure.querySelector(".now-line");
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    const flag = figure.querySelector(".now-flag");
    const wide = text.getComputedTextLength() + 14;
    flag.setAttribute("x", x - wide / 2);
    flag.setAttribute("width", wide);
    for (const group of groups) {
      const held = group.bars.filter((bar) => bar.first <= current && current < bar.last);
      group.bars.forEach((bar) => bar.node.classList.toggle("held", held.includes(bar)));
      const chips = held.slice(0, 200).map((bar) => chip(bar.value, "chip"));
      if (held.length > 200) chips.push(chip("and " + (held.length - 200) + " more", "none"));
      group.list.replaceChildren(...(chips.length ? chips : [chip("empty", "none")]));
    }
    const next = ticks[current + 1];
    timeline.querySelector(".instant").textContent = tick.dataset.time;
    timeline.querySelector(".until").textContent = next ? "until " + next.dataset.time : "for ever";
    slider.value = String(current);
    slider.setAttribute("aria-valuetext", "instant " + tick.dataset.time);
  }

  function reveal() {
    const x = Number(ticks[current].dataset.x);
    const left = scroller.scrollLeft + 40;
    const right = scroller.scrollLeft + scroller.clientWidth - 90;
    if (x < left || x > right) scroller.scrollLeft = x - scroller.clientWidth / 2;
  }

  function go(number) { show(number); reveal(); }

  function nearest(event) {
    const x = event.clientX - figure.getBoundingClientRect().left;
    let found = 0;
    ticks.forEach((tick, number) => { if (Number(tick.dataset.x) <= x) found = number; });
    return found;
  }

  const keys = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 };
  scroller.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    go(current + keys[event.key]);
  });
  if (ticks.length) {
    figure.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") show(nearest(event)); });
    figure.addEventListener("click", (event) => show(nearest(event)));
    slider.addEventListener("input", () => go(Number(slider.value)));
    timeline.querySelector("button.back").addEventListener("click", () => go(current - 1));
    timeline.querySelector("button.on").addEventListener("click", () => go(current + 1));
    figure.classList.add("pointed");
    timeline.querySelector(".panel").hidden = false;
    go(Number(slider.value));
  }
  // The names of the lanes stay in view while the picture is scrolled sideways.
  scroller.addEventListener("scroll", () => {
    titles.forEach((title) => title.setAttribute("transform", "translate(" + scroller.scrollLeft + ")"));
  });
}

document.querySelectorAll(".timeline").forEach(bringToLife);
document.querySelectorAll("button[data-copy]").forEach((button) => {
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      getSelection().selectAllChildren(source);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
});

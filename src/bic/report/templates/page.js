// The controls.

function pickRun(number) {
  state.run = number;
  const numSteps = run().steps.length;
  $("step").max = numSteps;
  pickStep(numSteps);
  prepareConfusions();
  fillClasses();
  refresh();
}

function pickStep(number) {
  state.step = number;
  $("step").value = number;
  const name = `${number} of ${run().steps.length}, ${withCommas(step().seen)} classes`;
  $("step-name").textContent = name;
  $("step").setAttribute("aria-valuetext", name);
  view.range = null;
  $("unzoom").hidden = true;
  describeBias();
}

function pickProtocol(number) {
  state.protocol = number;
  const { curves, papers } = data.protocols[number];
  const isKnown = (metric) =>
    [...curves, ...papers].some((curve) => curve[metric]?.some((value) => value !== null));
  const isCorrected = ({ uncorrected, top1 }) =>
    uncorrected.some((value, index) => value !== top1[index]);
  for (const input of document.querySelectorAll("[name=metric]")) {
    const adds = input.value !== "uncorrected" || curves.some(isCorrected);
    input.closest("label").hidden = !isKnown(input.value) || !adds;
  }
  // The paper reports top-5 for some data sets.
  state.metric = papers.some((curve) => curve.top5) ? "top5" : "top1";
  document.querySelector(`[name=metric][value=${state.metric}]`).checked = true;
  writeNumbers();
}

function onChange(id, act) {
  $(id).addEventListener("change", (event) => {
    act(event.target.value);
    refresh();
  });
}

onChange("run", (value) => pickRun(Number(value)));
onChange("protocol", (value) => pickProtocol(Number(value)));
onChange("metric", (value) => {
  state.metric = value;
  writeNumbers();
});
onChange("level", setLevel);
onChange("pairs-side", (value) => {
  view.side = value;
  fillPairs();
});
$("step").addEventListener("input", (event) => {
  pickStep(Number(event.target.value));
  refresh();
});
$("unzoom").addEventListener("click", () => zoom(null));

$("theme").addEventListener("click", () => {
  document.documentElement.style.colorScheme = dark() ? "light" : "dark";
  refresh();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);

for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
    button.textContent = "Copied";
  });
}

let width = innerWidth;
let waiting;
addEventListener("resize", () => {
  if (width === innerWidth) return; // on a phone, the address bar appears and disappears
  width = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(refresh, 150);
});

// In print, all charts are drawn, in light colours and as wide as a sheet of paper.
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  drawAll();
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  refresh();
});

pickProtocol(0);
// Start with a run that has a correction: it shows the most.
const first = Math.max(0, data.runs.findIndex(({ second }) => second === "correction"));
$("run").value = first;
pickRun(first);

// Plotly's script is the last on the page, so that tables and controls do not wait for it.
addEventListener("DOMContentLoaded", refresh);

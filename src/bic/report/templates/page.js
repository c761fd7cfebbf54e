// The controls.

function pickRun(number) {
  state.run = number;
  const steps = run().steps.length;
  $("step").max = steps;
  pickStep(steps);
  prepareConfusions();
  fillClasses();
  refresh();
}

function pickStep(number) {
  state.step = number;
  $("step").value = number;
  const name = `${number} of ${run().steps.length}, ${step().seen.toLocaleString("en")} classes`;
  $("step-name").textContent = name;
  $("step").setAttribute("aria-valuetext", name);
  view.range = null;
  $("unzoom").hidden = true;
  describeBias();
}

function pickProtocol(number) {
  state.protocol = number;
  const { curves, papers } = data.protocols[number];
  for (const input of document.querySelectorAll("[name=metric]")) {
    const known = [...curves, ...papers].some((curve) => curve[input.value]?.some((value) => value !== null));
    const differs = input.value !== "raw" || curves.some((curve) => curve.raw.some((value, index) => value !== curve.top1[index]));
    input.closest("label").hidden = !known || !differs;
  }
  state.metric = papers.some((curve) => curve.top5) ? "top5" : "top1"; // as in the paper
  document.querySelector(`[name=metric][value=${state.metric}]`).checked = true;
  writeNumbers();
}

const onChange = (id, act) => $(id).addEventListener("change", (event) => { act(event.target.value); refresh(); });
onChange("run", (value) => pickRun(Number(value)));
onChange("protocol", (value) => pickProtocol(Number(value)));
onChange("metric", (value) => { state.metric = value; writeNumbers(); });
onChange("level", setLevel);
onChange("pairs-side", (value) => { view.side = value; fillPairs(); });
$("step").addEventListener("input", (event) => { pickStep(Number(event.target.value)); refresh(); });
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
  if (width === innerWidth) return; // a phone's address bar comes and goes
  width = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(refresh, 150);
});

// On paper everything is drawn, in the light and in the width of a sheet.
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  drawAll();
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  refresh();
});

pickProtocol(0);
// A run with a correction shows most.
const first = Math.max(0, data.runs.findIndex((each) => each.second === "correction"));
$("run").value = first;
pickRun(first);

// Plotly's script comes last in the page, so that tables and controls need not wait for it.
addEventListener("DOMContentLoaded", refresh);

// What all parts of the page use: the data, the state, and charts that are drawn when they come
// into view.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const state = { run: 0, step: 1, protocol: 0, metric: "top1" };
const run = () => data.runs[state.run];
const step = () => run().steps[state.step - 1];
const names = () => data.names[run().names];
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const withCommas = (number) => number.toLocaleString("en");
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

// Plotly interprets some HTML in its texts, but class names are plain text.
const plain = (text) =>
  String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// The names of the predictions: of the raw logits, and of the correction or the method's own
// classifier.
function sides() {
  const second = run().second;
  if (second === "correction") return { before: "before correction", after: "after correction" };
  if (second === "classifier") {
    return { before: "raw logits", after: "the method’s own classifier" };
  }
  return { after: "predictions" };
}

// The class numbers at which the group of step `number` (from 1) begins and ends.
const group = (number) => [run().steps[number - 2]?.seen ?? 0, run().steps[number - 1].seen];
const groupOf = (classNumber) => run().steps.findIndex(({ seen }) => classNumber < seen) + 1;

const probe = document.body.appendChild(make("i", { hidden: "" }));
function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}
const dark = () => colour("card") !== "rgb(255, 255, 255)";

// On a dark page, dark colours of methods are replaced: these three by hand, so that they differ
// from each other and from the rest, and all others by a mixture with white.
const lighter = { "#000000": "#ffffff", "#0072B2": "#2f86d0", "#56B4E9": "#a3dcff" };
function onPage(shade) {
  if (!dark()) return shade;
  if (lighter[shade]) return lighter[shade];
  const channels = [1, 3, 5].map((start) => parseInt(shade.slice(start, start + 2), 16));
  const [red, green, blue] = channels;
  const brightness = 0.299 * red + 0.587 * green + 0.114 * blue;
  if (brightness > 95) return shade;
  const mixed = channels.map((channel) => Math.round((channel + 255) / 2));
  return `rgb(${mixed.join(", ")})`;
}

function axis(title, more = {}) {
  const shade = colour("line");
  return {
    title: { text: title, font: { size: 13, color: colour("muted") }, standoff: 8 },
    gridcolor: shade,
    linecolor: shade,
    zeroline: false,
    automargin: true,
    ...more,
  };
}

function layout(more) {
  const ink = colour("ink");
  const muted = colour("muted");
  const transparent = "rgba(0,0,0,0)";
  return {
    margin: { l: 50, r: 12, t: 26, b: 40 },
    paper_bgcolor: transparent,
    plot_bgcolor: transparent,
    modebar: { bgcolor: transparent, color: muted, activecolor: ink },
    font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: ink },
    hoverlabel: {
      bgcolor: colour("card"), bordercolor: muted, font: { color: ink }, align: "left",
    },
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", font: { size: 12.5 } },
    ...more,
  };
}

// A chart is a function that returns { traces, layout }.
const charts = new Map();
// On a touch screen the toolbar would always cover the chart. No button uploads the data.
const config = {
  displaylogo: false,
  showSendToCloud: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  displayModeBar: matchMedia("(hover: none)").matches ? false : "hover",
};

function draw(id) {
  const chart = charts.get(id);
  const element = $(id);
  if (!window.Plotly || !chart.when()) return;
  const figure = chart.figure(element);
  chart.stale = false;
  const size = { width: element.clientWidth, height: element.clientHeight };
  Plotly.react(element, figure.traces, layout({ ...size, ...figure.layout }), config);
  if (chart.drawn) chart.drawn(element);
  chart.drawn = null;
}

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const chart = charts.get(entry.target.id);
    chart.visible = entry.isIntersecting;
    if (chart.visible && chart.stale) draw(entry.target.id);
  }
}, { rootMargin: "200px" });

// The chart is shown while `when()` is true. `drawn(element)` is called once, after the first
// drawing.
function addChart(id, figure, { when = () => true, drawn = null } = {}) {
  charts.set(id, { figure, when, drawn, stale: true, visible: false });
  watcher.observe($(id));
}

function drawAll() {
  for (const id of charts.keys()) draw(id);
}

// After a change of state: redraw the charts in view now, the others when they come into view.
function refresh() {
  for (const [id, chart] of charts) {
    chart.stale = true;
    $(id).closest("figure").hidden = !chart.when();
    if (chart.visible) draw(id);
  }
}

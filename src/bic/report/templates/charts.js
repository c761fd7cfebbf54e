// Accuracy, calibration and time.

const byStep = () => run().steps.map(({ seen }) => seen);
const markers = (symbol, size = 7) => ({ symbol, size });
const sideSymbol = (side) => (side === "before" ? "diamond" : "circle");
const ticks = (values) => ({
  tickformat: ",d",
  ...(values.length > 20 ? {} : { tickvals: values }),
});
const allSeen = (curves) =>
  [...new Set(curves.flatMap(({ seen }) => seen))].sort((a, b) => a - b);

function curveTrace(curve, line, more = {}) {
  return {
    name: plain(curve.label),
    x: curve.seen,
    y: curve[state.metric],
    mode: "lines+markers",
    line: { color: onPage(curve.colour), ...line },
    marker: markers(curve.symbol, 8),
    hovertemplate: "%{y:.2f} %",
    ...more,
  };
}

function methodTrace(curve) {
  const hasBars = curve.std && state.metric === "top1";
  const bars = { type: "data", array: curve.std, thickness: 1.2, width: 3 };
  const line = curve.bound ? { width: 1.5, dash: "dash" } : { width: 2.4, dash: curve.dash };
  return curveTrace(curve, line, { error_y: hasBars ? bars : { visible: false } });
}

addChart("curves", (element) => {
  const { curves, papers } = data.protocols[state.protocol];
  const hasMetric = (curve) => curve[state.metric]?.some((value) => value !== null);
  const traces = [
    ...curves.filter(hasMetric).map(methodTrace),
    ...papers.filter(hasMetric).map((curve) => curveTrace(curve, { width: 1.3, dash: "dot" })),
  ];
  const narrow = element.clientWidth < 640;
  const below = { orientation: "h", x: 0, y: -0.16, yanchor: "top", font: { size: 12 } };
  const beside = { x: 1.02, y: 1, yanchor: "top", font: { size: 12.5 } };
  element.style.height = narrow ? `${360 + 20 * traces.length}px` : "";
  return {
    traces,
    layout: {
      margin: { l: 50, r: 12, t: 34, b: 44 },
      hovermode: "x unified",
      showlegend: true,
      legend: narrow ? below : beside,
      xaxis: axis("classes seen", {
        ...ticks(allSeen(curves)),
        hoverformat: ",d",
        unifiedhovertitle: { text: "%{x} classes" },
      }),
      yaxis: axis(state.metric === "top5" ? "top-5 accuracy (%)" : "top-1 accuracy (%)"),
    },
  };
});

// The same numbers as a table, for readers who cannot see the chart.
function writeNumbers() {
  const { curves, papers } = data.protocols[state.protocol];
  const rows = [...curves, ...papers].filter((curve) => curve[state.metric]);
  const seen = allSeen(rows);
  const value = (curve, count) =>
    curve[state.metric][curve.seen.indexOf(count)]?.toFixed(2) ?? "–";
  const titles = ["classes seen", ...seen];
  const head = make("tr", {}, ...titles.map((text) => make("th", { scope: "col" }, text)));
  const body = rows.map((curve) => make("tr", {},
    make("th", { scope: "row" }, curve.label),
    ...seen.map((count) => make("td", {}, value(curve, count)))));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  $("numbers").replaceChildren(table);
}

addChart("reliability", () => {
  const { calibration } = step();
  const known = Object.entries(sides()).filter(([side]) => calibration[side]);
  const traces = known.map(([side, name]) => {
    const { bins } = calibration[side];
    const filled = bins.filter(([count]) => count);
    const numImages = sum(bins.map(([count]) => count));
    return {
      name,
      x: filled.map(([, confidence]) => confidence),
      y: filled.map(([, , accuracy]) => accuracy),
      customdata: filled.map(([count]) => count),
      mode: "lines+markers",
      line: { color: colour(side), width: 2 },
      marker: {
        symbol: sideSymbol(side),
        size: filled.map(([count]) => 5 + 14 * Math.sqrt(count / numImages)),
      },
      hovertemplate: "confidence %{x:.1%}, accuracy %{y:.1%}<br>%{customdata:,} images",
    };
  });
  const errors = known.map(([side, name]) => `${name}: ECE ${calibration[side].error.toFixed(3)}`);
  const reason = calibration.after ? "" : "; distances to means are no confidences";
  $("reliability-note").textContent = `in 15 bins of confidence; ${errors.join(", ")}${reason}`;
  const diagonal = {
    name: "calibrated",
    x: [0, 1],
    y: [0, 1],
    mode: "lines",
    hoverinfo: "skip",
    line: { color: colour("muted"), width: 1, dash: "dash" },
  };
  const ends = { range: [-0.02, 1.02], tickformat: ".0%" };
  return {
    traces: [diagonal, ...traces],
    layout: { xaxis: axis("confidence", ends), yaxis: axis("accuracy", ends) },
  };
}, { when: () => step().calibration });

addChart("error", () => {
  const known = Object.entries(sides()).filter(([side]) => step().calibration[side]);
  const traces = known.map(([side, name]) => ({
    name,
    x: byStep(),
    y: run().steps.map(({ calibration }) => calibration[side].error),
    mode: "lines+markers",
    line: { color: colour(side), width: 2 },
    marker: markers(sideSymbol(side)),
    hovertemplate: "%{y:.3f} at %{x} classes",
  }));
  return {
    traces,
    layout: {
      xaxis: axis("classes seen", ticks(byStep())),
      yaxis: axis("ECE", { rangemode: "tozero" }),
    },
  };
}, { when: () => step().calibration });

const phases = [...new Set(data.runs.flatMap(({ seconds }) => Object.keys(seconds)))];
const phaseNames = {
  stage1: "stage 1: network",
  stage2: "stage 2: correction",
  memory: "memory",
  evaluate: "testing",
};
const phaseColours = [
  "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#999999",
];

function timeUnit(seconds) {
  if (seconds < 120) return ["seconds", 1];
  return seconds < 7200 ? ["minutes", 60] : ["hours", 3600];
}

addChart("time", (element) => {
  const numbers = data.runs.map((_, number) => number);
  element.style.height = `${Math.min(900, 120 + 30 * numbers.length)}px`;
  const longest = Math.max(...data.runs.map(({ seconds }) => sum(Object.values(seconds))));
  const [unit, divisor] = timeUnit(longest);
  const room = element.clientWidth < 640 ? 14 : 60;
  const short = (text) => (text.length > room ? `${text.slice(0, room)}…` : text);
  const traces = phases.map((phase, number) => ({
    type: "bar",
    orientation: "h",
    name: phaseNames[phase] ?? plain(phase),
    y: numbers,
    x: data.runs.map(({ seconds }) => (seconds[phase] ?? 0) / divisor),
    marker: { color: onPage(phaseColours[number % phaseColours.length]) },
    hovertemplate: `%{x:.2f} ${unit}`,
  }));
  return {
    traces,
    layout: {
      barmode: "stack",
      bargap: 0.35,
      showlegend: true,
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal" },
      margin: { l: 50, r: 12, t: 30, b: 40 },
      xaxis: axis(unit),
      yaxis: axis("", {
        autorange: "reversed",
        tickvals: numbers,
        ticktext: data.runs.map(({ label }) => plain(short(label))),
      }),
    },
  };
}, { when: () => phases.length });

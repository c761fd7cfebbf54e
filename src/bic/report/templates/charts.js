// Accuracy, calibration and time.

const byStep = () => run().steps.map((each) => each.seen);
const markers = (symbol, size = 7) => ({ symbol, size });
const ticks = (values) => ({ tickformat: ",d", ...(values.length > 20 ? {} : { tickvals: values }) });

addChart("curves", (element) => {
  const { curves, papers } = data.protocols[state.protocol];
  const metric = state.metric;
  const lines = curves.filter((curve) => curve[metric].some((value) => value !== null)).map((curve) => ({
    name: plain(curve.label), x: curve.seen, y: curve[metric], mode: "lines+markers",
    line: { color: onPage(curve.colour), width: curve.bound ? 1.5 : 2.4, dash: curve.bound ? "dash" : curve.dash },
    marker: markers(curve.symbol, 8), hovertemplate: "%{y:.2f} %",
    error_y: curve.spread && metric === "top1"
      ? { type: "data", array: curve.spread, thickness: 1.2, width: 3 } : { visible: false },
  }));
  const dotted = papers.filter((curve) => curve[metric]).map((curve) => ({
    name: plain(curve.label), x: curve.seen, y: curve[metric], mode: "lines+markers",
    line: { color: onPage(curve.colour), width: 1.3, dash: "dot" }, marker: markers(curve.symbol, 8),
    hovertemplate: "%{y:.2f} %",
  }));
  const seen = [...new Set(curves.flatMap((curve) => curve.seen))].sort((a, b) => a - b);
  const narrow = element.clientWidth < 640;
  const below = { orientation: "h", x: 0, y: -0.16, yanchor: "top", font: { size: 12 } };
  const beside = { x: 1.02, y: 1, yanchor: "top", font: { size: 12.5 } };
  element.style.height = narrow ? `${360 + 20 * (lines.length + dotted.length)}px` : "";
  return {
    traces: [...lines, ...dotted],
    layout: {
      margin: { l: 50, r: 12, t: 34, b: 44 }, hovermode: "x unified", showlegend: true,
      legend: narrow ? below : beside,
      xaxis: axis("classes seen", { ...ticks(seen), hoverformat: ",d", unifiedhovertitle: { text: "%{x} classes" } }),
      yaxis: axis(metric === "top5" ? "top-5 accuracy (%)" : "top-1 accuracy (%)"),
    },
  };
});

// The same numbers as a table, for those who don't see the chart.
function writeNumbers() {
  const { curves, papers } = data.protocols[state.protocol];
  const rows = [...curves, ...papers].filter((curve) => curve[state.metric]);
  const seen = [...new Set(rows.flatMap((curve) => curve.seen))].sort((a, b) => a - b);
  const value = (curve, count) => curve[state.metric][curve.seen.indexOf(count)]?.toFixed(2) ?? "–";
  const head = make("tr", {}, ...["classes seen", ...seen].map((text) => make("th", { scope: "col" }, text)));
  const body = rows.map((curve) => make("tr", {},
    make("th", { scope: "row" }, curve.label), ...seen.map((count) => make("td", {}, value(curve, count)))));
  $("numbers").replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

addChart("reliability", () => {
  const { calibration } = step();
  const notes = [];
  const traces = Object.entries(sides()).filter(([side]) => calibration[side]).map(([side, name]) => {
    const { error, bins } = calibration[side];
    const filled = bins.filter(([count]) => count);
    notes.push(`${name}: ECE ${error.toFixed(3)}`);
    return {
      name, x: filled.map((bin) => bin[1]), y: filled.map((bin) => bin[2]), customdata: filled.map((bin) => bin[0]),
      mode: "lines+markers", line: { color: colour(side), width: 2 },
      marker: { symbol: side === "before" ? "diamond" : "circle", size: filled.map((bin) => 5 + 14 * Math.sqrt(bin[0] / total(bins))) },
      hovertemplate: "sure %{x:.1%}, right %{y:.1%}<br>%{customdata:,} images",
    };
  });
  $("reliability-note").textContent = `right answers by confidence, in 15 bins; ${notes.join(", ")}${calibration.after ? "" : "; distances to means are no confidences"}`;
  const diagonal = { name: "calibrated", x: [0, 1], y: [0, 1], mode: "lines", hoverinfo: "skip",
    line: { color: colour("muted"), width: 1, dash: "dash" } };
  const ends = { range: [-0.02, 1.02], tickformat: ".0%" };
  return { traces: [diagonal, ...traces],
    layout: { xaxis: axis("confidence of the answer", ends), yaxis: axis("answers that are right", ends) } };
}, { when: () => step().calibration });

const total = (bins) => bins.reduce((sum, bin) => sum + bin[0], 0);

addChart("error", () => {
  const known = Object.entries(sides()).filter(([side]) => step().calibration[side]);
  const traces = known.map(([side, name]) => ({
    name, x: byStep(), y: run().steps.map((each) => each.calibration[side].error), mode: "lines+markers",
    line: { color: colour(side), width: 2 }, marker: markers(side === "before" ? "diamond" : "circle"),
    hovertemplate: "%{y:.3f} at %{x} classes",
  }));
  return { traces, layout: { xaxis: axis("classes seen", ticks(byStep())), yaxis: axis("ECE", { rangemode: "tozero" }) } };
}, { when: () => step().calibration });

const phases = [...new Set(data.runs.flatMap((each) => Object.keys(each.seconds)))];

addChart("time", (element) => {
  const called = { stage1: "stage 1: network", stage2: "stage 2: correction", memory: "memory", evaluate: "testing" };
  const shades = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#999999"];
  const labels = data.runs.map((each, index) => index);
  element.style.height = `${Math.min(900, 120 + 30 * labels.length)}px`;
  const longest = Math.max(...data.runs.map((each) => Object.values(each.seconds).reduce((sum, one) => sum + one, 0)));
  const [unit, divisor] = longest < 120 ? ["seconds", 1] : longest < 7200 ? ["minutes", 60] : ["hours", 3600];
  const room = element.clientWidth < 640 ? 14 : 60;
  const short = (text) => (text.length > room ? `${text.slice(0, room)}…` : text);
  const traces = phases.map((phase, index) => ({
    type: "bar", orientation: "h", name: called[phase] ?? plain(phase), y: labels,
    x: data.runs.map((each) => (each.seconds[phase] ?? 0) / divisor),
    marker: { color: onPage(shades[index % 7]) },
    hovertemplate: `%{x:.2f} ${unit}`,
  }));
  return { traces, layout: {
    barmode: "stack", bargap: 0.35, showlegend: true, legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal" }, margin: { l: 50, r: 12, t: 30, b: 40 }, xaxis: axis(unit),
    yaxis: axis("", { autorange: "reversed", tickvals: labels, ticktext: data.runs.map((each) => plain(short(each.label))) }) } };
}, { when: () => phases.length });

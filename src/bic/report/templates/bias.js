// The bias made visible: shares of answers, the correction, scores, norms, and what becomes of each group.

addChart("new-share", () => {
  const traces = Object.entries(sides()).map(([side, name]) => ({
    name, x: byStep(), y: run().steps.map((each) => each.new[side]), mode: "lines+markers",
    line: { color: colour(side), width: 2.2 }, marker: markers(side === "before" ? "diamond" : "circle"),
    hovertemplate: "%{y:.1%} at %{x} classes",
  }));
  const truth = { name: "true share", x: byStep(), y: run().steps.map((each) => each.new.true), mode: "lines+markers",
    line: { color: colour("ink"), width: 1.3, dash: "dash" }, marker: markers("line-ew-open", 9), hovertemplate: "%{y:.1%} at %{x} classes" };
  return { traces: [...traces, truth], layout: { xaxis: axis("classes seen", ticks(byStep())),
    yaxis: axis("share of test images", { tickformat: ".0%", rangemode: "tozero" }) } };
});

// Per group where there are predictions; old and newest classes otherwise.
function groupShares() {
  if (step().shares) return { labels: step().shares.true.map((_, index) => `${index + 1}`), ...step().shares };
  const both = (share) => [1 - share, share];
  const { before, after, true: truth } = step().new;
  const old = state.step > 1;
  return old ? { labels: ["old", "newest"], before: both(before), after: both(after), true: both(truth) }
    : { labels: ["newest"], before: [before], after: [after], true: [truth] };
}

addChart("group-share", () => {
  const shares = groupShares();
  $("group-share-note").textContent = `after step ${state.step}, newest last`;
  const bars = Object.entries(sides()).map(([side, name]) => ({
    type: "bar", name, x: shares.labels, y: shares[side], marker: { color: colour(side) }, hovertemplate: "%{y:.1%}",
  }));
  const truth = { name: "true share", x: shares.labels, y: shares.true, mode: "markers",
    marker: { symbol: "line-ew-open", size: 26, color: colour("ink"), line: { width: 2 } }, hovertemplate: "%{y:.1%}" };
  return { traces: [...bars, truth], layout: { barmode: "group", bargap: 0.25,
    xaxis: axis(step().shares ? "classes learned in step" : "classes", { type: "category" }),
    yaxis: axis("share of answers", { tickformat: ".0%" }) } };
});

addChart("pair", () => {
  const corrected = run().steps.filter((each) => each.alpha !== null);
  const x = corrected.map((each) => each.seen);
  const line = (name, symbol, key, neutral, more) => [
    { name, x, y: corrected.map((each) => each[key]), mode: "lines+markers", line: { color: colour("after"), width: 2.2 },
      marker: markers(symbol), hovertemplate: `${name} %{y:.3f} at %{x} classes`, ...more },
    { x: [x[0], x.at(-1)], y: [neutral, neutral], mode: "lines", hoverinfo: "skip", showlegend: false,
      line: { color: colour("muted"), width: 1, dash: "dash" }, ...more },
  ];
  return {
    traces: [...line("α", "circle", "alpha", 1, {}), ...line("β", "square", "beta", 0, { yaxis: "y2" })],
    layout: { showlegend: false, margin: { l: 50, r: 12, t: 8, b: 40 },
      xaxis: axis("classes seen (dashed: no correction)", { ...ticks(x), anchor: "y2" }),
      yaxis: axis("α", { domain: [0.55, 1] }), yaxis2: axis("β", { domain: [0, 0.45] }) },
  };
}, { when: () => run().second === "correction" });

// A histogram as a density over α·score + β.
function density(histogram, name, shade, { alpha = 1, beta = 0, axes }) {
  const { start, width, counts } = histogram;
  const sum = counts.reduce((all, count) => all + count, 0);
  return {
    name, legendgroup: name, showlegend: axes.first, xaxis: axes.x, yaxis: axes.y, mode: "lines", fill: "tozeroy",
    x: counts.map((_, index) => alpha * (start + width * (index + 0.5)) + beta),
    y: counts.map((count) => count / sum / width / Math.abs(alpha)),
    line: { color: colour(shade), width: 2, shape: "spline", dash: shade === "old" ? "dot" : "solid" },
    hovertemplate: "score %{x:.1f}: %{y:.3f}",
  };
}

addChart("scores", (element) => {
  const { scores, alpha, beta } = step();
  const second = alpha !== null && alpha !== 0;
  const stacked = element.clientWidth < 640;
  element.style.height = stacked && second ? "460px" : "300px";
  const places = [{ x: "x", y: "y", first: true }, { x: "x2", y: "y2", first: false }];
  const traces = places.slice(0, second ? 2 : 1).flatMap((axes, index) => [
    ...(scores.old ? [density(scores.old, "old classes", "old", { axes })] : []),
    ...(scores.new ? [density(scores.new, "new classes", "new", index ? { alpha, beta, axes } : { axes })] : []),
  ]);
  const correction = second ? `: α ${alpha.toFixed(2)}, β ${beta.toFixed(2).replace("-", "−")}` : "";
  $("scores-note").textContent = `of all test images after step ${state.step}, each part’s area being 1${correction}`;
  const across = second && !stacked;
  const panel = (text, x, y) => ({ text, xref: "paper", yref: "paper", x, y, xanchor: "right", yanchor: "top", showarrow: false, font: { color: colour("muted") } });
  const titles = second ? [panel("before correction", across ? 0.47 : 1, 1), panel("after correction", 1, across ? 1 : 0.42)] : [];
  const right = across ? [0.53, 1] : [0, 1];
  return { traces, layout: {
    annotations: titles,
    xaxis: axis("score", { domain: across ? [0, 0.47] : [0, 1], anchor: "y" }),
    yaxis: axis("density", { domain: second && stacked ? [0.58, 1] : [0, 1], rangemode: "tozero" }),
    ...(second && {
      xaxis2: axis("score", { domain: right, matches: "x", anchor: "y2" }),
      yaxis2: axis("", { domain: stacked ? [0, 0.42] : [0, 1], matches: "y", anchor: "x2" }),
    }) } };
}, { when: () => step().scores.old || step().scores.new });

addChart("norms", () => {
  const norms = step().norms;
  $("norms-note").textContent = `after step ${state.step}: quartiles and extremes`;
  const boxes = (name, shade, numbers) => ({
    type: "box", name, x: numbers.map((number) => `${number}`), fillcolor: "rgba(0,0,0,0)", line: { color: colour(shade), width: 2 },
    lowerfence: numbers.map((number) => norms[number - 1][0]), q1: numbers.map((number) => norms[number - 1][1]),
    median: numbers.map((number) => norms[number - 1][2]), q3: numbers.map((number) => norms[number - 1][3]),
    upperfence: numbers.map((number) => norms[number - 1][4]),
  });
  const numbers = norms.map((_, index) => index + 1);
  const old = numbers.length > 1 ? [boxes("old classes", "old", numbers.slice(0, -1))] : [];
  return { traces: [...old, boxes("new classes", "new", numbers.slice(-1))], layout: {
    showlegend: true, xaxis: axis("classes learned in step", { type: "category" }), yaxis: axis("norm", { rangemode: "tozero" }) } };
}, { when: () => step().norms });

addChart("groups", () => {
  const steps = run().steps;
  const shade = (index) => `hsl(${dark() ? 205 : 210} ${dark() ? 60 : 75}% ${dark() ? 80 - (40 * index) / steps.length : 22 + (45 * index) / steps.length}%)`;
  const traces = run().sizes.map((_, index) => {
    const later = steps.slice(index);
    return {
      name: `step ${index + 1}`, x: later.map((each) => each.seen), y: later.map((each) => each.groups[index]),
      mode: "lines+markers", line: { color: shade(index), width: 2 }, hovertemplate: `classes of step ${index + 1}: %{y:.1f} % at %{x}`,
      marker: markers(["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down"][index % 8]),
    };
  });
  const overall = { name: "all classes", x: byStep(), y: steps.map((each) => each.top1), mode: "lines",
    line: { color: colour("ink"), width: 2, dash: "dash" }, hovertemplate: "all classes: %{y:.1f} % at %{x}" };
  return { traces: [...traces, overall], layout: { showlegend: traces.length <= 12, margin: { l: 50, r: 12, t: 30, b: 40 },
    hoverlabel: { namelength: 0, bgcolor: colour("card"), font: { color: colour("ink") } },
    xaxis: axis("classes seen", ticks(byStep())), yaxis: axis("accuracy (%)") } };
});

function describeBias() {
  const { new: shares, alpha } = step();
  const truth = `${percent(shares.true)} of the test images belong to the newest classes`;
  $("bias-note").textContent = alpha === null
    ? `After step ${state.step}, ${truth}; ${percent(shares.after)} of the answers name one of them.`
    : `After step ${state.step}, ${truth}. Before correction ${percent(shares.before)} of the answers name one of them, after it ${percent(shares.after)}.`;
}

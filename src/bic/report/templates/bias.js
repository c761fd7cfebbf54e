// The bias made visible: shares of predictions, the correction, logits, norms, and the accuracy of
// each group over time.

addChart("new-share", () => {
  const shareTrace = (side, more) => ({
    x: byStep(),
    y: run().steps.map(({ new: shares }) => shares[side]),
    mode: "lines+markers",
    hovertemplate: "%{y:.1%} at %{x} classes",
    ...more,
  });
  const predicted = Object.entries(sides()).map(([side, name]) => shareTrace(side, {
    name,
    line: { color: colour(side), width: 2.2 },
    marker: markers(sideSymbol(side)),
  }));
  const truth = shareTrace("true", {
    name: "true share",
    line: { color: colour("ink"), width: 1.3, dash: "dash" },
    marker: markers("line-ew-open", 9),
  });
  return {
    traces: [...predicted, truth],
    layout: {
      xaxis: axis("classes seen", ticks(byStep())),
      yaxis: axis("share of test images", { tickformat: ".0%", rangemode: "tozero" }),
    },
  };
});

// The shares of each group; without predictions, those of old and newest classes.
function groupShares() {
  const { shares, new: ofNew } = step();
  if (shares) return { labels: shares.true.map((_, index) => `${index + 1}`), ...shares };
  const hasOld = state.step > 1;
  const split = (share) => (hasOld ? [1 - share, share] : [share]);
  return {
    labels: hasOld ? ["old", "newest"] : ["newest"],
    before: split(ofNew.before),
    after: split(ofNew.after),
    true: split(ofNew.true),
  };
}

addChart("group-share", () => {
  const shares = groupShares();
  $("group-share-note").textContent = `after step ${state.step}, newest last`;
  const bars = Object.entries(sides()).map(([side, name]) => ({
    type: "bar",
    name,
    x: shares.labels,
    y: shares[side],
    marker: { color: colour(side) },
    hovertemplate: "%{y:.1%}",
  }));
  const truth = {
    name: "true share",
    x: shares.labels,
    y: shares.true,
    mode: "markers",
    marker: { symbol: "line-ew-open", size: 26, color: colour("ink"), line: { width: 2 } },
    hovertemplate: "%{y:.1%}",
  };
  const title = step().shares ? "classes learned in step" : "classes";
  return {
    traces: [...bars, truth],
    layout: {
      barmode: "group",
      bargap: 0.25,
      xaxis: axis(title, { type: "category" }),
      yaxis: axis("share of predictions", { tickformat: ".0%" }),
    },
  };
});

addChart("pair", () => {
  const corrected = run().steps.filter(({ alpha }) => alpha !== null);
  const x = corrected.map(({ seen }) => seen);
  const parameter = (name, symbol, key, neutral, more) => [
    {
      name,
      x,
      y: corrected.map((record) => record[key]),
      mode: "lines+markers",
      line: { color: colour("after"), width: 2.2 },
      marker: markers(symbol),
      hovertemplate: `${name} %{y:.3f} at %{x} classes`,
      ...more,
    },
    {
      x: [x[0], x.at(-1)],
      y: [neutral, neutral],
      mode: "lines",
      hoverinfo: "skip",
      showlegend: false,
      line: { color: colour("muted"), width: 1, dash: "dash" },
      ...more,
    },
  ];
  return {
    traces: [
      ...parameter("α", "circle", "alpha", 1, {}),
      ...parameter("β", "square", "beta", 0, { yaxis: "y2" }),
    ],
    layout: {
      showlegend: false,
      margin: { l: 50, r: 12, t: 8, b: 40 },
      xaxis: axis("classes seen (dashed: no correction)", { ...ticks(x), anchor: "y2" }),
      yaxis: axis("α", { domain: [0.55, 1] }),
      yaxis2: axis("β", { domain: [0, 0.45] }),
    },
  };
}, { when: () => run().second === "correction" });

// A histogram of logits as a density over α·logit + β.
function density(histogram, name, shade, { alpha = 1, beta = 0, axes }) {
  const { start, width, counts } = histogram;
  const total = sum(counts);
  return {
    name,
    legendgroup: name,
    showlegend: axes.first,
    xaxis: axes.x,
    yaxis: axes.y,
    mode: "lines",
    fill: "tozeroy",
    x: counts.map((_, index) => alpha * (start + width * (index + 0.5)) + beta),
    y: counts.map((count) => count / total / width / Math.abs(alpha)),
    line: {
      color: colour(shade), width: 2, shape: "spline", dash: shade === "old" ? "dot" : "solid",
    },
    hovertemplate: "logit %{x:.1f}: %{y:.3f}",
  };
}

function panelTitle(text, x, y) {
  return {
    text, x, y,
    xref: "paper",
    yref: "paper",
    xanchor: "right",
    yanchor: "top",
    showarrow: false,
    font: { color: colour("muted") },
  };
}

addChart("logits", (element) => {
  const { logits, alpha, beta } = step();
  const corrected = alpha !== null && alpha !== 0;
  const stacked = element.clientWidth < 640;
  const sideBySide = corrected && !stacked;
  element.style.height = stacked && corrected ? "460px" : "300px";

  const panel = (axes, correction) => [
    ...(logits.old ? [density(logits.old, "old classes", "old", { axes })] : []),
    ...(logits.new ? [density(logits.new, "new classes", "new", { axes, ...correction })] : []),
  ];
  const traces = panel({ x: "x", y: "y", first: true }, {});
  const annotations = [];
  if (corrected) {
    traces.push(...panel({ x: "x2", y: "y2", first: false }, { alpha, beta }));
    annotations.push(panelTitle("before correction", sideBySide ? 0.47 : 1, 1));
    annotations.push(panelTitle("after correction", 1, sideBySide ? 1 : 0.42));
  }

  const shownBeta = corrected ? beta.toFixed(2).replace("-", "−") : "";
  const correction = corrected ? `; α ${alpha.toFixed(2)}, β ${shownBeta}` : "";
  $("logits-note").textContent =
    `of all test images after step ${state.step}; each curve has area 1${correction}`;

  const firstAxes = {
    xaxis: axis("logit", { domain: sideBySide ? [0, 0.47] : [0, 1], anchor: "y" }),
    yaxis: axis("density", {
      domain: corrected && stacked ? [0.58, 1] : [0, 1],
      rangemode: "tozero",
    }),
  };
  const secondAxes = {
    xaxis2: axis("logit", {
      domain: sideBySide ? [0.53, 1] : [0, 1], matches: "x", anchor: "y2",
    }),
    yaxis2: axis("", { domain: stacked ? [0, 0.42] : [0, 1], matches: "y", anchor: "x2" }),
  };
  return { traces, layout: { annotations, ...firstAxes, ...(corrected ? secondAxes : {}) } };
}, { when: () => step().logits.old || step().logits.new });

addChart("norms", () => {
  const { norms } = step();
  $("norms-note").textContent = `after step ${state.step}: quartiles and extremes`;
  // A step without new classes has no norms.
  const groups = norms.map((numbers, index) => [index + 1, numbers])
    .filter(([, numbers]) => numbers.length);
  const boxes = (name, shade, shown) => ({
    type: "box",
    name,
    x: shown.map(([number]) => `${number}`),
    fillcolor: "rgba(0,0,0,0)",
    line: { color: colour(shade), width: 2 },
    lowerfence: shown.map(([, numbers]) => numbers[0]),
    q1: shown.map(([, numbers]) => numbers[1]),
    median: shown.map(([, numbers]) => numbers[2]),
    q3: shown.map(([, numbers]) => numbers[3]),
    upperfence: shown.map(([, numbers]) => numbers[4]),
  });
  const old = groups.filter(([number]) => number < norms.length);
  const newest = groups.filter(([number]) => number === norms.length);
  return {
    traces: [
      ...(old.length ? [boxes("old classes", "old", old)] : []),
      ...(newest.length ? [boxes("new classes", "new", newest)] : []),
    ],
    layout: {
      showlegend: true,
      xaxis: axis("classes learned in step", { type: "category" }),
      yaxis: axis("norm", { rangemode: "tozero" }),
    },
  };
}, { when: () => step().norms });

const groupSymbols = [
  "circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down",
];

// The first steps have the strongest contrast to the page.
function groupColour(index, numGroups) {
  if (dark()) return `hsl(205 60% ${80 - (40 * index) / numGroups}%)`;
  return `hsl(210 75% ${22 + (45 * index) / numGroups}%)`;
}

addChart("groups", () => {
  const { steps, sizes } = run();
  const traces = sizes.map((_, index) => {
    const later = steps.slice(index);
    return {
      name: `step ${index + 1}`,
      x: later.map(({ seen }) => seen),
      y: later.map(({ groups }) => groups[index]),
      mode: "lines+markers",
      line: { color: groupColour(index, steps.length), width: 2 },
      marker: markers(groupSymbols[index % groupSymbols.length]),
      hovertemplate: `classes of step ${index + 1}: %{y:.1f} % at %{x}`,
    };
  });
  const overall = {
    name: "all classes",
    x: byStep(),
    y: steps.map(({ top1 }) => top1),
    mode: "lines",
    line: { color: colour("ink"), width: 2, dash: "dash" },
    hovertemplate: "all classes: %{y:.1f} % at %{x}",
  };
  return {
    traces: [...traces, overall],
    layout: {
      showlegend: traces.length <= 12,
      margin: { l: 50, r: 12, t: 30, b: 40 },
      hoverlabel: { namelength: 0, bgcolor: colour("card"), font: { color: colour("ink") } },
      xaxis: axis("classes seen", ticks(byStep())),
      yaxis: axis("accuracy (%)"),
    },
  };
});

function describeBias() {
  const { new: shares, alpha } = step();
  const truth = `After step ${state.step}, ${percent(shares.true)} of the test images belong to ` +
    "the newest classes";
  const after = percent(shares.after);
  $("bias-note").textContent = alpha === null
    ? `${truth}; ${after} of the predictions name one of them.`
    : `${truth}. Before correction ${percent(shares.before)} of the predictions name one of ` +
      `them, after it ${after}.`;
}

// Confusion matrices before and after correction, by groups or by (bins of) classes, and the most
// confused pairs.

const view = { level: "bins", range: null, cell: null, side: "after" };

// The counts of the finest matrix, row by row.
function counts(side) {
  const { kind, data: packed } = step().confusion[side];
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  return new globalThis[kind](bytes.buffer);
}

// The class numbers at which rows and columns begin, and the end of the last. `finest` are those of
// the matrix in the data.
function edges() {
  const { seen } = step();
  const finest = [...run().bins.filter((start) => start < seen), seen];
  if (view.level === "bins") return { edges: finest, finest };
  return { edges: [0, ...byStep().slice(0, state.step)], finest };
}

// The visible part of the matrix.
function shownPart() {
  const whole = [-0.5, edges().edges.length - 1.5];
  return view.range ?? { x: whole, y: whole };
}

function matrix(side) {
  const flat = counts(side);
  const { edges: wanted, finest } = edges();
  const size = wanted.length - 1;
  const place = finest.slice(0, -1).map((start) => wanted.findIndex((edge) => edge > start) - 1);
  const summed = Array.from({ length: size }, () => new Array(size).fill(0));
  place.forEach((row, from) => place.forEach((column, to) => {
    summed[row][column] += flat[from * place.length + to];
  }));
  return summed;
}

function binName(edgeList, index) {
  const [start, end] = [edgeList[index], edgeList[index + 1]];
  if (end === start) return `step ${index + 1} (no classes)`;
  if (end - start === 1) return names()[start];
  const range = `classes ${start + 1}–${end}`;
  return view.level === "groups" ? `step ${index + 1} (${range})` : range;
}

// Class names if they fit into this range, otherwise the steps.
function matrixTicks(edgeList, pixels, range) {
  const all = edgeList.slice(0, -1).map((_, index) => index);
  if (view.level === "groups") {
    return { tickvals: all, ticktext: all.map((index) => `${index + 1}`) };
  }
  const [low, high] = range.map((end) => Math.round(end));
  if ((high - low) * 17 < pixels && edgeList[1] === 1) {
    const name = (index) => plain(names()[edgeList[index]].slice(0, 18));
    return { tickvals: all, ticktext: all.map(name) };
  }
  const binAt = (classNumber) => edgeList.findIndex((edge) => edge >= classNumber);
  const middle = ([start, end]) => (binAt(start) + binAt(end) - 1) / 2;
  const stride = state.step <= 10 ? 1 : Math.ceil(state.step / 8);
  const steps = byStep().slice(0, state.step).map((_, index) => index + 1);
  const shown = steps.filter((_, index) => index % stride === 0);
  return {
    tickvals: shown.map((number) => middle(group(number))),
    ticktext: shown.map((number) => `step ${number}`),
  };
}

// Dashed lines before the newest classes.
function borders(edgeList) {
  if (state.step === 1) return [];
  const [newest] = group(state.step);
  const at = edgeList.findIndex((edge) => edge >= newest) - 0.5;
  const end = edgeList.length - 1.5;
  const line = { color: colour("before"), width: 1.5, dash: "dash" };
  return [
    { type: "line", x0: at, x1: at, y0: -0.5, y1: end, line },
    { type: "line", y0: at, y1: at, x0: -0.5, x1: end, line },
  ];
}

function heatmap(cells, edgeList, hasScale) {
  const labels = cells.map((_, index) => plain(binName(edgeList, index)));
  const totals = cells.map(sum);
  const share = (row, column) => (totals[row] ? cells[row][column] / totals[row] : 0);
  const about = (row, column) => [
    labels[row],
    `taken for ${row === column ? "itself" : labels[column]}:`,
    `${withCommas(cells[row][column])} of ${withCommas(totals[row])}, ` +
      percent(share(row, column)),
  ].join("<br>");
  const byCell = (value) => cells.map((row, from) => row.map((_, to) => value(from, to)));
  const gap = cells.length <= 30 ? 1 : 0;
  const scale = [0, 0.01, 0.1, 0.25, 0.5, 1];
  return {
    type: "heatmap",
    z: byCell((row, column) => Math.sqrt(share(row, column))),
    text: byCell(about),
    hovertemplate: "%{text}<extra></extra>",
    zmin: 0,
    zmax: 1,
    xgap: gap,
    ygap: gap,
    showscale: hasScale,
    colorscale: [[0, colour("card")], [1, colour("heat")]],
    colorbar: {
      thickness: 10,
      outlinewidth: 0,
      tickvals: scale.map(Math.sqrt),
      ticktext: scale.map((value) => `${100 * value} %`),
      len: 0.9,
      x: 1.01,
    },
  };
}

function matrixFigure(side) {
  return (element) => {
    const { edges: edgeList } = edges();
    const title = sides()[side];
    const caption = element.closest("figure").querySelector("strong");
    caption.textContent = title[0].toUpperCase() + title.slice(1);
    const top1 = side === "after" ? step().top1 : step().uncorrected;
    $(`${element.id}-note`).textContent = `step ${state.step}: ${top1.toFixed(1)} % right`;

    const { x: across, y: down } = shownPart();
    const namedTicks = (range) => matrixTicks(edgeList, element.clientWidth - 90, range);
    const columns = namedTicks(across);
    const style = { showgrid: false, ticks: "", tickfont: { size: 11 } };
    return {
      traces: [heatmap(matrix(side), edgeList, element.clientWidth > 380)],
      layout: {
        shapes: borders(edgeList),
        margin: { l: 50, r: 12, t: 38, b: 40 },
        dragmode: "zoom",
        xaxis: {
          ...axis("predicted class", { ...columns, range: across, ...style }),
          tickangle: columns.ticktext.length <= 12 ? "auto" : -90,
        },
        yaxis: {
          ...axis("true class", { ...namedTicks(down), range: [...down].reverse(), ...style }),
          scaleanchor: undefined,
        },
      },
    };
  };
}

// Both matrices show the same part. A click on a cell lists its pairs.
function follow(element) {
  element.on("plotly_relayout", (change) => {
    const { x, y } = shownPart();
    const [left, right] = [change["xaxis.range[0]"] ?? x[0], change["xaxis.range[1]"] ?? x[1]];
    const [low, high] = [change["yaxis.range[1]"] ?? y[0], change["yaxis.range[0]"] ?? y[1]];
    if (change["xaxis.autorange"] || change["yaxis.autorange"]) {
      zoom(null);
    } else if ("xaxis.range[0]" in change || "yaxis.range[0]" in change) {
      zoom({ x: [left, right], y: [low, high] });
    }
  });
  element.on("plotly_click", ({ points: [{ x, y }] }) => {
    const { edges: edgeList } = edges();
    const row = matrix(element.id.replace("confusion-", ""))[y];
    const predicted = x === y ? "itself" : binName(edgeList, x);
    const said = `${binName(edgeList, y)} taken for ${predicted}: ${withCommas(row[x])} of ` +
      `${withCommas(sum(row))} after step ${state.step}.`;
    view.cell = {
      true: [edgeList[y], edgeList[y + 1]],
      predicted: [edgeList[x], edgeList[x + 1]],
      said,
    };
    fillPairs();
  });
}

function zoom(range) {
  view.range = range;
  $("unzoom").hidden = range === null;
  draw("confusion-before");
  draw("confusion-after");
}

for (const side of ["before", "after"]) {
  const when = () => step().confusion && sides()[side];
  addChart(`confusion-${side}`, matrixFigure(side), { when, drawn: follow });
}

const numImages = (classNumber) => run().classes.images[classNumber];

const pairTable = addTable($("pairs"), "The most confused pairs", [
  {
    title: "True class",
    left: true,
    first: "ascending",
    value: ([trueClass]) => names()[trueClass],
    cell: ([trueClass]) => pictured(trueClass),
  },
  {
    title: "Taken for",
    left: true,
    first: "ascending",
    value: ([, predicted]) => names()[predicted],
    cell: ([, predicted]) => pictured(predicted),
  },
  {
    title: "Learned in steps",
    value: ([trueClass]) => groupOf(trueClass),
    cell: ([trueClass, predicted]) => `${groupOf(trueClass)} → ${groupOf(predicted)}`,
  },
  {
    title: "Test images",
    value: ([, , count]) => count,
    cell: ([trueClass, , count]) => `${count} of ${numImages(trueClass)}`,
  },
  {
    title: "Share",
    value: ([trueClass, , count]) => count / numImages(trueClass),
    cell: (_, share) => percent(share),
  },
], { sort: 3, page: 8 });

function fillPairs() {
  if (!run().pairs) return;
  const { cell } = view;
  const { listed, total } = run().pairs[sides().before ? view.side : "after"];
  const isInside = (classNumber, [start, end]) => classNumber >= start && classNumber < end;
  const isInCell = ([trueClass, predicted]) =>
    isInside(trueClass, cell.true) && isInside(predicted, cell.predicted);
  const rows = cell ? listed.filter(isInCell) : listed;
  const showAll = () => {
    view.cell = null;
    fillPairs();
  };
  const button = () =>
    make("button", { type: "button", click: showAll }, "Only this cell’s: show all");
  const note = cell ? make("span", { class: "cell" }, `${cell.said} `, button()) : "";
  const isCut = !cell && total > listed.length;
  const more = isCut ? ` (the most frequent of ${withCommas(total)})` : "";
  const text = ([trueClass, predicted]) => `${names()[trueClass]} ${names()[predicted]}`;
  pairTable.fill(rows, text, note, more);
}

// Up to a hundred classes are shown one by one; more are shown by group first.
function prepareConfusions() {
  const { bins, sizes } = run();
  const known = Boolean(bins);
  $("confusions-empty").hidden = known;
  $("confusions-body").hidden = !known;
  if (!known) return;
  const isSingle = bins.length - 1 === names().length;
  const hasGroups = sizes.length > 1 && sizes.length < bins.length - 1;
  const largest = Math.max(...bins.slice(1).map((end, index) => end - bins[index]));
  $("level").hidden = !hasGroups;
  const levelName = isSingle ? "classes" : `bins of up to ${largest} classes`;
  document.querySelector(".level-name").textContent = levelName;
  setLevel(isSingle || !hasGroups ? "bins" : "groups");
  const { before, after } = sides();
  $("pairs-side").hidden = !before;
  document.querySelector(".after-name").textContent = after;
  document.querySelector(".before-name").textContent = before ?? "";
  view.cell = null;
  fillPairs();
}

function setLevel(level) {
  Object.assign(view, { level, range: null });
  $("unzoom").hidden = true;
  document.querySelector(`[name=level][value=${level}]`).checked = true;
}

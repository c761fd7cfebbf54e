// Confusion matrices before and after, of groups or of (bins of) classes, and the pairs most confused.

const view = { level: "bins", range: null, cell: null, side: "after" };

function counts(side) {
  const { kind, data: packed } = step().confusion[side];
  const bytes = Uint8Array.from(atob(packed), (one) => one.charCodeAt(0));
  return new globalThis[kind](bytes.buffer);
}

// Where rows and columns begin, in class numbers, with the end of the last.
function edges() {
  const seen = step().seen;
  const finest = [...run().bins.filter((start) => start < seen), seen];
  if (view.level === "bins") return { edges: finest, finest };
  return { edges: [0, ...run().steps.slice(0, state.step).map((each) => each.seen)], finest };
}

// The part of the matrix that is zoomed to, or all of it.
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
  place.forEach((row, from) => place.forEach((column, to) => (summed[row][column] += flat[from * place.length + to])));
  return summed;
}

function binName(edgeList, index) {
  const [start, end] = [edgeList[index], edgeList[index + 1]];
  if (end - start === 1) return names()[start];
  return view.level === "groups" ? `step ${index + 1} (classes ${start + 1}–${end})` : `classes ${start + 1}–${end}`;
}

// Names where there is room for them in this range, otherwise the steps.
function matrixTicks(edgeList, pixels, range) {
  const size = edgeList.length - 1;
  const [low, high] = range.map((end) => Math.round(end));
  const all = Array.from({ length: size }, (_, index) => index);
  if (view.level === "groups") return { tickvals: all, ticktext: all.map((index) => `${index + 1}`) };
  if ((high - low) * 17 < pixels && edgeList[1] === 1) {
    return { tickvals: all, ticktext: all.map((index) => plain(names()[edgeList[index]].slice(0, 18))) };
  }
  const starts = run().steps.slice(0, state.step).map((each, index) => group(index + 1));
  const middle = ([start, end]) => (edgeList.findIndex((edge) => edge >= start) + edgeList.findIndex((edge) => edge >= end) - 1) / 2;
  const shown = starts.map((ends, index) => [middle(ends), `step ${index + 1}`]).filter((_, index) => starts.length <= 10 || index % Math.ceil(starts.length / 8) === 0);
  return { tickvals: shown.map(([at]) => at), ticktext: shown.map(([, text]) => text) };
}

function matrixFigure(side) {
  return (element) => {
    const title = sides()[side];
    const { edges: edgeList } = edges();
    const cells = matrix(side);
    const size = cells.length;
    const labels = cells.map((_, index) => plain(binName(edgeList, index)));
    const sums = cells.map((row) => row.reduce((sum, count) => sum + count, 0));
    const share = (row, column) => (sums[row] ? cells[row][column] / sums[row] : 0);
    const z = cells.map((row, at) => row.map((_, to) => Math.sqrt(share(at, to))));
    const text = cells.map((row, at) => row.map((count, to) =>
      `${labels[at]}<br>taken for ${at === to ? "itself" : labels[to]}:<br>${count.toLocaleString("en")} of ${sums[at].toLocaleString("en")}, ${percent(share(at, to))}`));
    const top1 = side === "after" ? step().top1 : step().raw;
    const caption = element.closest("figure").querySelector("strong");
    caption.textContent = title[0].toUpperCase() + title.slice(1);
    $(`${element.id}-note`).textContent = `step ${state.step}: ${top1.toFixed(1)} % right`;
    const border = edgeList.findIndex((edge) => edge >= group(state.step)[0]) - 0.5;
    const line = (ends) => ({ type: "line", ...ends, line: { color: colour("before"), width: 1.5, dash: "dash" } });
    const marks = state.step > 1 ? [line({ x0: border, x1: border, y0: -0.5, y1: size - 0.5 }), line({ y0: border, y1: border, x0: -0.5, x1: size - 0.5 })] : [];
    const { x: across, y: down } = shownPart();
    const named = (range) => matrixTicks(edgeList, element.clientWidth - 90, range);
    const at = [0, 0.01, 0.1, 0.25, 0.5, 1];
    const place = (title, ticks, range) => axis(title, { ...ticks, range, showgrid: false, ticks: "", tickfont: { size: 11 } });
    const columns = named(across);
    return {
      traces: [{ type: "heatmap", z, text, hovertemplate: "%{text}<extra></extra>", zmin: 0, zmax: 1, xgap: size <= 30 ? 1 : 0, ygap: size <= 30 ? 1 : 0,
        showscale: element.clientWidth > 380, colorscale: [[0, colour("card")], [1, colour("heat")]],
        colorbar: { thickness: 10, outlinewidth: 0, tickvals: at.map(Math.sqrt), ticktext: at.map((one) => `${100 * one} %`), len: 0.9, x: 1.01 } }],
      layout: { shapes: marks, margin: { l: 50, r: 12, t: 38, b: 40 }, dragmode: "zoom",
        xaxis: { ...place("answer", columns, across), tickangle: columns.ticktext.length <= 12 ? "auto" : -90 },
        yaxis: { ...place("true class", named(down), [...down].reverse()), scaleanchor: undefined } },
    };
  };
}

// Both matrices show the same part, and a click on a cell picks its pairs.
function follow(element) {
  element.on("plotly_relayout", (change) => {
    const { x, y } = shownPart();
    const [left, right] = [change["xaxis.range[0]"] ?? x[0], change["xaxis.range[1]"] ?? x[1]];
    const [low, high] = [change["yaxis.range[1]"] ?? y[0], change["yaxis.range[0]"] ?? y[1]];
    if (change["xaxis.autorange"] || change["yaxis.autorange"]) zoom(null);
    else if ("xaxis.range[0]" in change || "yaxis.range[0]" in change) zoom({ x: [left, right], y: [low, high] });
  });
  element.on("plotly_click", ({ points: [{ x, y }] }) => {
    const { edges: edgeList } = edges();
    const row = matrix(element.id.replace("confusion-", ""))[y];
    const said = `${binName(edgeList, y)} taken for ${x === y ? "itself" : binName(edgeList, x)}: ${row[x].toLocaleString("en")} of ` +
      `${row.reduce((sum, count) => sum + count, 0).toLocaleString("en")} after step ${state.step}.`;
    view.cell = { true: [edgeList[y], edgeList[y + 1]], answer: [edgeList[x], edgeList[x + 1]], said };
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
  addChart(`confusion-${side}`, matrixFigure(side), { when: () => step().confusion && sides()[side], drawn: follow });
}

const pairTable = addTable($("pairs"), "The most confused pairs", [
  { title: "True class", left: true, first: "ascending", value: (pair) => names()[pair[0]], cell: (pair) => pictured(pair[0]) },
  { title: "Taken for", left: true, first: "ascending", value: (pair) => names()[pair[1]], cell: (pair) => pictured(pair[1]) },
  { title: "Learned in steps", value: (pair) => groupOf(pair[0]), cell: (pair) => `${groupOf(pair[0])} → ${groupOf(pair[1])}` },
  { title: "Test images", value: (pair) => pair[2], cell: (pair) => `${pair[2]} of ${run().classes.images[pair[0]]}` },
  { title: "Share", value: (pair) => pair[2] / run().classes.images[pair[0]], cell: (_, share) => percent(share) },
], { sort: 3, page: 8 });

function fillPairs() {
  if (!run().pairs) return;
  const inside = (one, [start, end]) => one >= start && one < end;
  const { listed: all, total } = run().pairs[sides().before ? view.side : "after"];
  const rows = view.cell ? all.filter((pair) => inside(pair[0], view.cell.true) && inside(pair[1], view.cell.answer)) : all;
  const button = () => make("button", { type: "button", click: () => { view.cell = null; fillPairs(); } }, "Only the cell’s: show all");
  const note = view.cell ? make("span", { class: "cell" }, `${view.cell.said} `, button()) : "";
  const more = total > all.length ? ` (the most frequent of ${total.toLocaleString("en")})` : "";
  pairTable.fill(rows, (pair) => `${names()[pair[0]]} ${names()[pair[1]]}`, note, view.cell ? "" : more);
}

// Thousands of classes are shown by group first; up to a hundred, one by one.
function prepareConfusions() {
  const known = Boolean(run().bins);
  $("confusions-empty").hidden = known;
  $("confusions-body").hidden = !known;
  if (!known) return;
  const single = run().bins.length - 1 === names().length;
  const several = run().sizes.length > 1 && run().sizes.length < run().bins.length - 1;
  $("level").hidden = !several;
  $("level-name").textContent = single ? "classes" : `bins of up to ${Math.max(...run().bins.slice(1).map((end, index) => end - run().bins[index]))} classes`;
  setLevel(single || !several ? "bins" : "groups");
  const { before, after } = sides();
  $("pairs-side").hidden = !before;
  for (const name of document.querySelectorAll(".after-name")) name.textContent = after;
  for (const name of document.querySelectorAll(".before-name")) name.textContent = before ?? "";
  view.cell = null;
  fillPairs();
}

function setLevel(level) {
  Object.assign(view, { level, range: null });
  $("unzoom").hidden = true;
  document.querySelector(`[name=level][value=${level}]`).checked = true;
}

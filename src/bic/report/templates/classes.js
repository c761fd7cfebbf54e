// The table of all classes: accuracy now, without correction, and at its best.

const bar = (value) => {
  const filled = make("i");
  filled.style.width = `${value}%`;
  return make("span", { class: "bar", "aria-hidden": "true" }, filled);
};
const barCell = (row, value) =>
  value === null ? "–" : make("span", { class: "valued" }, bar(value), `${value.toFixed(1)} %`);
const pointsCell = (row, value) => (value === null ? "–" : value.toFixed(1));
const column = (name) => (classNumber) => run().classes[name][classNumber];
const difference = (first, second) => (classNumber) => {
  const [from, to] = [column(first)(classNumber), column(second)(classNumber)];
  return from === null || to === null ? null : to - from;
};

const classTable = addTable($("class-table"), "Every class", [
  {
    title: "Class",
    left: true,
    first: "ascending",
    value: (classNumber) => names()[classNumber],
    cell: pictured,
  },
  { title: "Learned in step", first: "ascending", value: groupOf },
  { title: "Accuracy", first: "ascending", value: column("after"), cell: barCell },
  { title: "Raw", first: "ascending", value: column("before"), cell: pointsCell },
  { title: "Gain over raw", value: difference("before", "after"), cell: pointsCell },
  { title: "Best before", value: column("best"), cell: pointsCell },
  { title: "Forgetting", value: difference("after", "best"), cell: pointsCell },
], { sort: 6, page: 10 });

function fillClasses() {
  const known = Boolean(run().classes);
  for (const section of ["classes", "calibration"]) {
    $(`${section}-empty`).hidden = known;
    $(`${section}-body`).hidden = !known;
  }
  if (!known) return;
  const classNumbers = names().map((_, number) => number);
  classTable.fill(classNumbers, (classNumber) => names()[classNumber]);
}

// Every class: how well it is known now, before correction, and at its best.

const bar = (value) => {
  const filled = make("i");
  filled.style.width = `${value}%`;
  return make("span", { class: "bar", "aria-hidden": "true" }, filled);
};
const share = (row, value) => (value === null ? "–" : make("span", { class: "valued" }, bar(value), `${value.toFixed(1)} %`));
const points = (row, value) => (value === null ? "–" : value.toFixed(1));
const column = (name) => (one) => run().classes[name][one];
const forgetting = (one) => {
  const [best, now] = [column("best")(one), column("after")(one)];
  return best === null || now === null ? null : best - now;
};
const gain = (one) => {
  const [before, now] = [column("before")(one), column("after")(one)];
  return before === null || now === null ? null : now - before;
};

const classTable = addTable($("class-table"), "Every class", [
  { title: "Class", left: true, first: "ascending", value: (one) => names()[one], cell: pictured },
  { title: "Learned in step", first: "ascending", value: groupOf },
  { title: "Accuracy", first: "ascending", value: column("after"), cell: share },
  { title: "Raw", first: "ascending", value: column("before"), cell: points },
  { title: "Gain over raw", value: gain, cell: points },
  { title: "Best before", value: column("best"), cell: points },
  { title: "Forgetting", value: forgetting, cell: points },
], { sort: 6, page: 10 });

function fillClasses() {
  const known = Boolean(run().classes);
  $("classes-empty").hidden = known;
  $("classes-body").hidden = !known;
  $("calibration-empty").hidden = known;
  $("calibration-body").hidden = !known;
  if (known) classTable.fill(names().map((_, index) => index), (one) => names()[one]);
}

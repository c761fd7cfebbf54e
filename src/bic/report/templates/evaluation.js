// The tables of an evaluation. Rows are arrays, in the order in which evaluation_page.py writes
// them.

const named = (name) => make("span", { class: "named", title: name }, name);
const inPercent = (row, value) => `${value.toFixed(1)} %`;
const whole = (row, value) => withCommas(value);
const withBar = (row, value) => {
  const filled = make("i");
  filled.style.width = `${value}%`;
  const bar = make("span", { class: "bar", "aria-hidden": "true" }, filled);
  return make("span", { class: "valued" }, bar, `${value.toFixed(1)} %`);
};

addTable($("class-table"), "Classes", [
  {
    title: "Class",
    left: true,
    first: "ascending",
    value: ([name]) => name,
    cell: ([name]) => named(name),
  },
  { title: "Right", first: "ascending", value: ([, share]) => share, cell: withBar },
  {
    title: "95 % interval",
    first: "ascending",
    value: ([, , low]) => low,
    cell: ([, , low, high]) => `${low.toFixed(1)} to ${high.toFixed(1)} %`,
  },
  { title: "Test images", value: ([, , , , total]) => total, cell: whole },
  { title: "Times predicted", value: ([, , , , , predicted]) => predicted, cell: whole },
], { sort: 1, up: true }).fill(data.classes, ([name]) => name);

$("no-confusions").hidden = data.confusions.length > 0;
if (data.confusions.length) {
  addTable($("pairs"), "Most confused", [
    {
      title: "True class",
      left: true,
      first: "ascending",
      value: ([own]) => own,
      cell: ([own]) => named(own),
    },
    {
      title: "Taken for",
      left: true,
      first: "ascending",
      value: ([, other]) => other,
      cell: ([, other]) => named(other),
    },
    { title: "Images", value: ([, , count]) => count, cell: whole },
    { title: "Of the class", value: ([, , , share]) => share, cell: inPercent },
  ], { sort: 2, page: 10 }).fill(data.confusions, ([own, other]) => `${own} ${other}`);
}

for (const picture of document.querySelectorAll(".gallery img")) {
  picture.classList.toggle("tiny", picture.naturalWidth < 56);
}

$("theme").addEventListener("click", () => {
  document.documentElement.style.colorScheme = dark() ? "light" : "dark";
});

// A table that can be sorted and searched, and shows one page of its rows at a time.

const PAGE = 25;

// columns: { title, value(row), cell(row, value), left, first: "ascending" or "descending" }
function addTable(place, label, columns, { sort = null, up = false, page = PAGE } = {}) {
  const view = { rows: [], sort, up, from: 0, search: "", text: () => "", more: "" };

  const search = make("input", {
    type: "search",
    placeholder: "Search classes",
    "aria-label": `Search: ${label}`,
    input: () => {
      view.search = search.value.trim().toLowerCase();
      view.from = 0;
      show();
    },
  });
  const count = make("span", { class: "count", "aria-live": "polite" });
  const pageButton = (title, text, change) => make("button", {
    type: "button",
    "aria-label": title,
    click: () => {
      view.from += change;
      show();
    },
  }, text);
  const back = pageButton("Earlier rows", "‹", -page);
  const forward = pageButton("Later rows", "›", page);
  const extra = make("span", {});
  const sortBy = (index) => {
    view.up = view.sort === index ? !view.up : columns[index].first === "ascending";
    view.sort = index;
    view.from = 0;
    show();
  };
  const alignment = (column) => (column.left ? "left" : undefined);
  const heads = columns.map((column, index) => make("th",
    { scope: "col", class: alignment(column) },
    make("button", { type: "button", click: () => sortBy(index) }, column.title)));
  const body = make("tbody");
  const head = make("thead", {}, make("tr", {}, ...heads));
  const table = make("table", { class: "data" }, head, body);
  place.append(
    make("div", { class: "table-head" }, search, extra, count, back, forward),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table),
  );

  // Rows without a value come last in both directions.
  function sorted(rows) {
    if (view.sort === null) return rows;
    const withValues = rows.map((row) => [columns[view.sort].value(row), row]);
    const known = withValues.filter(([value]) => value !== null);
    const unknown = withValues.filter(([value]) => value === null);
    const byText = new Intl.Collator("en", { numeric: true }).compare;
    const compare = typeof known[0]?.[0] === "string" ? byText : (a, b) => a - b;
    known.sort(([a], [b]) => (view.up ? compare(a, b) : compare(b, a)));
    return [...known, ...unknown].map(([, row]) => row);
  }

  function bodyCell(column, row) {
    const value = column.value(row);
    const content = column.cell ? column.cell(row, value) : value ?? "–";
    return make("td", { class: alignment(column) }, content);
  }

  function show() {
    const matches = (row) => !view.search || view.text(row).toLowerCase().includes(view.search);
    const rows = sorted(view.rows.filter(matches));
    const shown = rows.slice(view.from, view.from + page);
    const end = view.from + shown.length;
    body.replaceChildren(...shown.map((row) =>
      make("tr", {}, ...columns.map((column) => bodyCell(column, row)))));
    const range = `${withCommas(view.from + 1)}–${withCommas(end)}`;
    const total = `${withCommas(rows.length)}${view.more}`;
    count.textContent = rows.length ? `${range} of ${total}` : "none";
    back.disabled = view.from === 0;
    forward.disabled = end >= rows.length;
    const direction = view.up ? "ascending" : "descending";
    heads.forEach((title, index) => {
      if (index === view.sort) title.setAttribute("aria-sort", direction);
      else title.removeAttribute("aria-sort");
    });
  }

  return {
    // `note` is shown before the number of rows, `more` after it.
    fill(rows, text, note = "", more = "") {
      Object.assign(view, { rows, text, more, from: 0 });
      extra.replaceChildren(...(note ? [note] : []));
      show();
    },
  };
}

// A class, shown by its exemplars and its name.
function pictured(classNumber) {
  const exemplars = data.pictures[run().pictures];
  const name = names()[classNumber];
  const images = Object.hasOwn(exemplars, name) ? exemplars[name] : [];
  const pictures = images.map((webp) => {
    const picture = make("img", {
      src: `data:image/webp;base64,${webp}`,
      alt: "",
      width: 32,
      height: 32,
      load: () => picture.classList.toggle("tiny", picture.naturalWidth < 24),
    });
    return picture;
  });
  return make("div", { class: "pictured" },
    make("span", { class: "pictures" }, ...pictures),
    make("span", { class: "name", title: name }, name));
}

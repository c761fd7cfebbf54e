// A table that shows a page of its rows: sorted by any column, searched, however many rows there are.

const PAGE = 25;

// columns: { title, value(row), cell(row, value), left, first: "ascending" or "descending" }
function addTable(place, label, columns, { sort = null, page = PAGE } = {}) {
  const view = { rows: [], sort, up: false, from: 0, search: "", text: (row) => "", more: "" };
  const search = make("input", { type: "search", placeholder: "Search classes", "aria-label": `Search: ${label}`, input: () => {
    view.search = search.value.trim().toLowerCase();
    view.from = 0;
    show();
  } });
  const count = make("span", { class: "count", "aria-live": "polite" });
  const back = make("button", { type: "button", "aria-label": "Earlier rows", click: () => turn(-page) }, "‹");
  const on = make("button", { type: "button", "aria-label": "Later rows", click: () => turn(page) }, "›");
  const extra = make("span", {});
  const heads = columns.map((column, index) => make("th", { scope: "col", class: column.left ? "left" : undefined },
    make("button", { type: "button", click: () => {
      view.up = view.sort === index ? !view.up : column.first === "ascending";
      view.sort = index;
      view.from = 0;
      show();
    } }, column.title)));
  const body = make("tbody");
  const table = make("table", { class: "data" }, make("thead", {}, make("tr", {}, ...heads)), body);
  place.append(make("div", { class: "table-head" }, search, extra, count, back, on),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table));

  function turn(by) {
    view.from += by;
    show();
  }

  // Rows without a value come last, whichever way the others are sorted.
  function sorted(rows) {
    if (view.sort === null) return rows;
    const valued = rows.map((row) => [columns[view.sort].value(row), row]);
    const known = valued.filter(([value]) => value !== null);
    const byText = new Intl.Collator("en", { numeric: true }).compare;
    const compare = typeof known[0]?.[0] === "string" ? byText : (a, b) => a - b;
    known.sort(([a], [b]) => (view.up ? compare(a, b) : compare(b, a)));
    return [...known, ...valued.filter(([value]) => value === null)].map(([, row]) => row);
  }

  function show() {
    const rows = sorted(view.rows.filter((row) => !view.search || view.text(row).toLowerCase().includes(view.search)));
    const shown = rows.slice(view.from, view.from + page);
    body.replaceChildren(...shown.map((row) => make("tr", {}, ...columns.map((column) => {
      const value = column.value(row);
      const content = column.cell ? column.cell(row, value) : value ?? "–";
      return make("td", { class: column.left ? "left" : undefined }, content);
    }))));
    const end = view.from + shown.length;
    count.textContent = rows.length ? `${(view.from + 1).toLocaleString("en")}–${end.toLocaleString("en")} of ${rows.length.toLocaleString("en")}${view.more}` : "none";
    back.disabled = view.from === 0;
    on.disabled = end >= rows.length;
    heads.forEach((head, index) => {
      if (index === view.sort) head.setAttribute("aria-sort", view.up ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  }

  return {
    // `note` stands before the number of rows, `more` after it.
    fill(rows, text, note = "", more = "") {
      Object.assign(view, { rows, text, more, from: 0 });
      extra.replaceChildren(...(note ? [note] : []));
      show();
    },
  };
}

// A class by its exemplars and name.
function pictured(one) {
  const kept = data.pictures[run().pictures];
  const name = names()[one];
  const pictures = (Object.hasOwn(kept, name) ? kept[name] : []).map((picture) => {
    const image = make("img", { src: `data:image/webp;base64,${picture}`, alt: "", width: 32, height: 32,
      load: () => image.classList.toggle("tiny", image.naturalWidth < 24) });
    return image;
  });
  return make("div", { class: "pictured" }, make("span", { class: "pictures" }, ...pictures), make("span", { class: "name", title: name }, name));
}

// A table that is sorted by its heads and filtered by a text, and whose rows stay the same elements while their
// cells change: a thousand rows cost nothing when nothing changed, and a reader keeps their place.

import { h } from "./dom.js";

export class Table {
  // columns: [{ key, label, value(row), cell(row), num }]; keyOf(row): what a row is known by.
  constructor({ caption, columns, keyOf, sort, empty, onrow }) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.sortKey = sort || columns[0].key;
    this.descending = false;
    this.empty = empty || "Nothing here.";
    this.rows = new Map();
    this.data = [];
    this.filter = "";
    this.keep = () => true;
    this.onrow = onrow;
    this.caption = h("caption", {}, caption || "");
    this.body = h("tbody");
    this.heads = columns.map((column) => this.head(column));
    this.none = h("p", { class: "empty hidden" }, this.empty);
    this.element = h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || "table" },
      h("table", {}, this.caption, h("thead", {}, h("tr", {}, this.heads)), this.body),
      this.none,
    );
  }

  head(column) {
    const sorted = column.key === this.sortKey;
    const button = h("button", { type: "button", onclick: () => this.sortBy(column.key) }, column.label);
    return h(
      "th",
      { scope: "col", class: column.num ? "num" : "", "aria-sort": sorted ? "ascending" : null, "data-key": column.key },
      column.value ? button : column.label,
    );
  }

  sortBy(key) {
    this.descending = key === this.sortKey ? !this.descending : false;
    this.sortKey = key;
    for (const head of this.heads) {
      if (head.dataset.key === key) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    this.arrange();
  }

  show(data, caption) {
    this.data = data;
    if (caption !== undefined) this.caption.textContent = caption;
    const gone = new Set(this.rows.keys());
    for (const row of data) {
      const key = this.keyOf(row);
      gone.delete(key);
      this.fill(key, row);
    }
    for (const key of gone) {
      this.rows.get(key).element.remove();
      this.rows.delete(key);
    }
    this.arrange();
  }

  fill(key, row) {
    let known = this.rows.get(key);
    if (known && known.row === row) return;
    if (!known) {
      const cells = this.columns.map((column) =>
        h(column.heading ? "th" : "td", { class: column.num ? "num" : column.class || "", scope: column.heading ? "row" : null }),
      );
      known = { element: h("tr", {}, cells), cells, shown: cells.map(() => undefined), text: "" };
      if (this.onrow) known.element.addEventListener("click", () => this.onrow(known.row, known.element));
      this.rows.set(key, known);
    }
    known.row = row;
    this.columns.forEach((column, index) => {
      const sign = column.sign ? column.sign(row) : JSON.stringify(column.value ? column.value(row) : row);
      if (known.shown[index] === sign) return;
      known.shown[index] = sign;
      const made = column.cell ? column.cell(row) : String(column.value(row) ?? "–");
      known.cells[index].replaceChildren(...[made].flat());
    });
    known.text = JSON.stringify(row).toLowerCase();
  }

  arrange() {
    const column = this.columns.find((one) => one.key === this.sortKey) || this.columns[0];
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = this.data.filter((row) => {
      if (!this.keep(row)) return false;
      const text = this.rows.get(this.keyOf(row)).text;
      return words.every((word) => text.includes(word));
    });
    const direction = this.descending ? -1 : 1;
    if (column.value) kept.sort((one, other) => direction * compare(column.value(one), column.value(other)));
    let place = this.body.firstChild;
    for (const row of kept) {
      const element = this.rows.get(this.keyOf(row)).element;
      if (element === place) place = place.nextSibling;
      else this.body.insertBefore(element, place);
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
    this.none.classList.toggle("hidden", kept.length > 0);
    this.shownRows = kept.length;
  }
}

function compare(one, other) {
  const none = (value) => value === null || value === undefined || value === "";
  if (none(one) || none(other)) return none(one) - none(other);
  if (typeof one === "string" && typeof other === "string") return one.localeCompare(other, "en", { numeric: true });
  return one < other ? -1 : one > other ? 1 : 0;
}

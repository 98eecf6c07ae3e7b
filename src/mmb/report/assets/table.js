"use strict";
// A sortable, filterable table. Beyond 200 rows only those in view are in the document.

const ROW_HEIGHT = 44;
const ALL_UP_TO = 200;
const SPARE = 12;

// Words in any order; case, accents and punctuation do not matter.
const plainWords = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase().replace(/[^\p{L}\p{N}]+/gu, " ").trim();
const matches = (name, wanted) => plainWords(wanted).split(" ").every((word) => plainWords(name).includes(word));

class TaskTable {
  // columns: {title, hint, text, key(task)}; choose(task) is called when a row's name is pressed.
  constructor(table, scroll, status, columns, count, choose) {
    Object.assign(this, { table, scroll, status, columns, choose });
    this.all = Array.from({ length: count }, (_, task) => task);
    this.order = this.all;
    this.sorted = { column: 0, descending: false, asGiven: true };
    this.filter = "";
    this.chosen = null;
    this.headers = columns.map((column, index) => {
      const button = make("button", { type: "button", title: column.hint }, column.title, make("span", { class: "arrow", "aria-hidden": "true" }));
      button.addEventListener("click", () => this.sortBy(index));
      return make("th", { scope: "col", "aria-sort": "none" }, button);
    });
    this.before = make("tbody", { class: "gap", "aria-hidden": "true" });
    this.body = make("tbody");
    this.after = make("tbody", { class: "gap", "aria-hidden": "true" });
    table.replaceChildren(make("thead", {}, make("tr", {}, ...this.headers)), this.before, this.body, this.after);
    let waiting = false;
    scroll.addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; this.show(); });
    });
    this.arrange();
  }

  sortBy(index) {
    const text = this.columns[index].text;
    const again = !this.sorted.asGiven && this.sorted.column === index;
    this.sorted = { column: index, descending: again ? !this.sorted.descending : !text, asGiven: false };
    this.arrange();
    const way = this.sorted.descending ? "descending" : "ascending";
    this.status.textContent = `Sorted by ${this.columns[index].title}, ${way}`;
  }

  filterBy(text) {
    this.filter = text;
    this.arrange();
    this.status.textContent = several(this.order.length, "task");
  }

  arrange() {
    const { column, descending, asGiven } = this.sorted;
    const name = this.columns[0].key;
    this.order = this.all.filter((task) => matches(name(task), this.filter));
    if (!asGiven) {
      const { key, text } = this.columns[column];
      const keys = new Map(this.order.map((task) => [task, key(task)]));
      const sign = descending ? -1 : 1;
      const compare = text ? new Intl.Collator(undefined, { numeric: true }).compare : (a, b) => a - b;
      this.order.sort((a, b) => {
        const [x, y] = [keys.get(a), keys.get(b)];
        if (!known(x) || !known(y)) return known(y) - known(x) || a - b; // gaps last, either way
        return sign * compare(x, y) || a - b;
      });
    }
    this.headers.forEach((header, index) => {
      const way = !asGiven && index === column ? (descending ? "descending" : "ascending") : "none";
      header.setAttribute("aria-sort", way);
      header.querySelector(".arrow").textContent = { none: "", ascending: "▲", descending: "▼" }[way];
    });
    this.table.setAttribute("aria-rowcount", this.order.length + 1);
    this.scroll.scrollTop = 0;
    this.show(true);
  }

  mark(task) {
    this.chosen = task;
    this.show(true);
  }

  show(rebuild = false) {
    const total = this.order.length;
    let [start, end] = [0, total];
    if (total > ALL_UP_TO) {
      const first = Math.floor(this.scroll.scrollTop / ROW_HEIGHT);
      start = Math.max(0, first - SPARE);
      end = Math.min(total, first + Math.ceil(this.scroll.clientHeight / ROW_HEIGHT) + SPARE);
    }
    const rows = (from, to) => this.order.slice(from, to).map((task, index) => this.row(task, from + index));
    if (rebuild || start >= this.end || end <= this.start) {
      const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.task : null;
      this.body.replaceChildren(...rows(start, end));
      if (focused !== null) this.body.querySelector(`[data-task="${focused}"]`)?.focus({ preventScroll: true });
    } else { // rows that stay are not touched, so the focus stays
      for (; this.start < start; this.start++) this.body.firstChild.remove();
      for (; this.end > end; this.end--) this.body.lastChild.remove();
      this.body.prepend(...rows(start, this.start));
      this.body.append(...rows(this.end, end));
    }
    [this.start, this.end] = [start, end];
    this.space(this.before, start);
    this.space(this.after, total - end);
  }

  space(part, rows) {
    const cell = make("td", { colspan: this.columns.length });
    cell.style.height = `${rows * ROW_HEIGHT}px`;
    part.replaceChildren(...(rows ? [make("tr", {}, cell)] : []));
  }

  row(task, place) {
    const [first, ...rest] = this.columns;
    const name = first.key(task);
    const button = make("button", { type: "button", title: name, "data-task": task }, make("span", {}, name));
    button.addEventListener("click", () => this.choose(task));
    return make("tr", { class: task === this.chosen ? "row chosen" : "row", "aria-rowindex": place + 2 },
      make("th", { scope: "row" }, button),
      ...rest.map((column) => make("td", {}, number(column.key(task), column.digits))));
  }
}

// Tables whose rows stay the same elements while their figures change.

import { el, keyed, setAttribute, setText } from "./dom.js";

/**
 * A table of `columns` `{title, text(row), field, isNumber, level(row), hint(row)}`; the
 * cell of `isHead` is its row's header. Below a row that `isOpen`, `more` fills a cell as
 * wide as the table.
 */
export class Table {
  constructor(parent, columns, { key, caption, nothing = "", more }) {
    this._columns = columns;
    this._key = key;
    this._more = more;
    this._body = el("tbody");
    this._nothing = el("p", { class: "nothing", text: nothing });
    const heads = columns.map((each) => el("th", {
      scope: "col", text: each.title, ...(each.isNumber ? { class: "number" } : {}),
    }));
    this._table = el(
      "table", {},
      el("caption", { class: "unseen", text: caption }),
      el("thead", {}, el("tr", {}, ...heads)), this._body,
    );
    parent.replaceChildren(this._table, this._nothing);
    // What can only be scrolled by a mouse is not for everyone.
    setAttribute(parent, "tabindex", "0");
    setAttribute(parent, "role", "region");
    setAttribute(parent, "aria-label", caption);
  }

  /** Show rows in this order. */
  show(rows) {
    this._table.hidden = rows.length === 0;
    this._nothing.hidden = rows.length > 0;
    const items = rows.flatMap((row) => (row.isOpen ? [{ row }, { row, isMore: true }] : [{ row }]));
    keyed(this._body, items, {
      key: ({ row, isMore }) => (isMore ? "more " : "") + this._key(row),
      make: ({ isMore }) => (isMore ? this._makeMore() : this._make()),
      update: (node, { row, isMore }) => {
        if (isMore) this._more(node.firstElementChild, row);
        else this._write(node, row);
      },
    });
  }

  _makeMore() {
    return el("tr", { class: "more" }, el("td", { colspan: this._columns.length }));
  }

  _make() {
    return el("tr", {}, ...this._columns.map((column) => {
      const cell = column.isHead ? el("th", { scope: "row" }) : el("td");
      if (column.isNumber) cell.className = "number";
      if (column.kind) cell.className = column.kind;
      if (column.field) cell.dataset.field = column.field;
      return cell;
    }));
  }

  _write(node, row) {
    this._columns.forEach((column, n) => {
      const cell = node.children[n];
      if (column.fill) {
        column.fill(cell, row);
        return;
      }
      const text = column.text(row);
      if (column.isPill) {
        const pill = cell.firstElementChild ?? cell.appendChild(el("span", { class: "pill" }));
        pill.hidden = !text;
        setText(pill, text);
        setAttribute(pill, "data-level", column.level(row));
      } else {
        setText(cell, text);
        if (column.level) setAttribute(cell, "data-level", column.level(row));
      }
      if (column.hint) setAttribute(cell, "title", column.hint(row) || null);
    });
  }
}

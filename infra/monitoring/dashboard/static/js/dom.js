// Elements made and brought up to date. Text is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element; `attributes` by name, `text` and children as given. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an element of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, { text, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  node.append(...children);
  return node;
}

/** Set a text, and touch nothing where it is the same. */
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Set an attribute, or remove it where the value is null. */
export function setAttribute(node, name, value) {
  if (value === null) {
    node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, String(value));
  }
}

/** Show or hide a node. */
export function show(node, isShown) {
  if (node.hidden === isShown) node.hidden = !isShown;
}

/**
 * Keep one child per item, in their order; children of the same key are kept, so that
 * focus, selections and what is open stay.
 */
export function keyed(parent, items, { key, make, update }) {
  const known = (parent.known ??= new Map());
  const focused = document.activeElement;
  const wanted = new Map(items.map((item) => [key(item), item]));
  for (const [id, node] of known) {
    if (!wanted.has(id)) {
      node.remove();
      known.delete(id);
    }
  }
  let next = parent.firstElementChild;
  for (const [id, item] of wanted) {
    let node = known.get(id);
    if (!node) known.set(id, (node = make(item)));
    update(node, item);
    if (node === next) {
      next = next.nextElementSibling;
    } else {
      parent.insertBefore(node, next);
    }
  }
  // A node that is moved loses the focus.
  if (focused !== document.activeElement && parent.contains(focused)) {
    focused.focus({ preventScroll: true });
  }
}

/** Make a group of buttons of which one is chosen, with the arrow keys as usual. */
export function radios(parent, options, chosen, choose) {
  const buttons = options.map(([value, label]) => {
    const button = el("button", { type: "button", role: "radio", text: label });
    button.dataset.value = value;
    button.addEventListener("click", () => pick(value));
    return button;
  });
  const mark = (value) => {
    for (const button of buttons) {
      const isChosen = button.dataset.value === value;
      button.setAttribute("aria-checked", String(isChosen));
      button.tabIndex = isChosen ? 0 : -1;
    }
  };
  const pick = (value) => {
    mark(value);
    choose(value);
  };
  parent.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = buttons.indexOf(document.activeElement);
    const to = buttons[(at + step + buttons.length) % buttons.length];
    to.focus();
    pick(to.dataset.value);
  });
  parent.replaceChildren(...buttons);
  mark(chosen);
}

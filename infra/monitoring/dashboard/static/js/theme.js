// The button that changes between the system's, the light and the dark theme.

const NEXT = { system: "light", light: "dark", dark: "system" };
const root = document.documentElement;

/** Wire the button; `changed` is called whenever other colours hold. */
export function setUpTheme(button, changed) {
  const show = () => {
    button.textContent = `Theme: ${root.dataset.theme ?? "system"}`;
  };
  button.addEventListener("click", () => {
    choose(NEXT[root.dataset.theme ?? "system"]);
    show();
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  show();
}

function choose(theme) {
  if (theme === "system") {
    delete root.dataset.theme;
  } else {
    root.dataset.theme = theme;
  }
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // It holds until the page is loaded again.
  }
}

const probe = document.createElement("span");
probe.hidden = true;

/** Return what a custom property is now as a colour that a canvas understands. */
export function colour(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

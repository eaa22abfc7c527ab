// Before the first paint: the theme that was chosen here before, if any.
"use strict";
(() => {
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "light" || chosen === "dark") {
      document.documentElement.dataset.theme = chosen;
    }
  } catch {
    // Storage is not allowed: the system's theme it is.
  }
})();

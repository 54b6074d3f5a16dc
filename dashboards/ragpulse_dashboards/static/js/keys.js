// The keyboard map of the help dialog. Keys act only outside fields, without modifiers.
let prefix = "";

const typing = (target) => target.closest("input, textarea, select, [contenteditable]");
const click = (selector) => {
  const found = document.querySelector(selector);
  found?.click();
  return Boolean(found);
};

function moveRow(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return false;
  const at = rows.findIndex((row) => row.classList.contains("current"));
  const next = rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
  for (const row of rows) row.classList.toggle("current", row === next);
  next.querySelector("[data-row-link]")?.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

function focusSearch() {
  const visible = [...document.querySelectorAll("[data-search]")].find((field) => field.offsetParent);
  if (visible) {
    visible.focus();
    return true;
  }
  const menu = document.querySelector("[data-filter-menu]");
  if (!menu) return false;
  menu.open = true;
  menu.querySelector("[data-search]").focus();
  return true;
}

function openMenu(selector, first) {
  const menu = document.querySelector(selector);
  if (!menu) return false;
  if (menu instanceof HTMLDetailsElement) menu.open = true;
  menu.querySelector(first)?.focus();
  return true;
}

const actions = new Map([
  ["?", () => !document.getElementById("help").showModal()],
  ["/", focusSearch],
  ["j", () => moveRow(1)],
  ["k", () => moveRow(-1)],
  ["[", () => click("[data-prev]")],
  ["]", () => click("[data-next]")],
  ["t", () => openMenu("[data-range]", "a")],
  ["f", () => openMenu("[data-filter-menu]", "input")],
  ["y", () => click("[data-verdict=y]")],
  ["n", () => click("[data-verdict=n]")],
  ["s", () => click("[data-skip]")],
  ["e", () => click("[data-evaluate]")],
]);

export function startKeys() {
  const help = document.querySelector("[data-help-open]");
  help.hidden = false;
  help.addEventListener("click", () => document.getElementById("help").showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const menu = document.querySelector("details.menu[open]");
    if (event.key === "Escape" && menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
    if (typing(event.target) || document.querySelector("dialog[open]")) return;
    if (prefix === "g") {
      prefix = "";
      const link = [...document.querySelectorAll("[data-go]")].find((one) => one.dataset.go === event.key);
      if (link) {
        event.preventDefault();
        link.click();
      }
      return;
    }
    prefix = event.key === "g" ? "g" : "";
    if (actions.get(event.key)?.()) event.preventDefault();
  });
}

// Every page: fragments, drawer, copying, menus, keys, theme. One file, because a page waits for its scripts and each
// file is a request. Pages load further modules as they need them.

const root = document.documentElement;

/** Put a fragment into a box, unless `accept` declines the response; the server escaped it, and it has no scripts. */
export async function load(url, box, accept = () => true) {
  const response = await fetch(url, { headers: { "HX-Request-Type": "partial" }, cache: "no-store" }); // a cached one would block a visit of the same URL
  const text = await response.text();
  if (!(await accept(response))) return;
  box.innerHTML = text;
  box.dispatchEvent(new CustomEvent("loaded", { bubbles: true }));
}

/** Open the drawer on a fragment; the URL also works as a page. */
export function openDrawer(url) {
  const drawer = document.getElementById("drawer");
  if (!drawer.open) drawer.showModal();
  return load(url, document.getElementById("drawer-body"));
}

/** Copy, and confirm it on the button; the clipboard needs HTTPS or localhost, the older command does not. */
async function copyText(text, button) {
  let copied = false;
  try {
    await navigator.clipboard.writeText(text);
    copied = true;
  } catch {
    const field = document.body.appendChild(Object.assign(document.createElement("textarea"), { value: text }));
    field.select();
    copied = document.execCommand("copy");
    field.remove();
  }
  const word = copied ? "Copied" : "Not copied: select it by hand";
  document.getElementById("announce").textContent = word;
  button.dataset.label ??= button.textContent;
  button.textContent = word;
  setTimeout(() => { button.textContent = button.dataset.label; }, 2000);
}

document.addEventListener("click", async (event) => {
  const drawerLink = event.target.closest("a[data-drawer]");
  const copyLink = event.target.closest("a[data-copy-href]");
  const addressLink = event.target.closest("a[data-copy-link]");
  const copyButton = event.target.closest("[data-copy]");
  const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey;
  if (drawerLink && plain) {
    event.preventDefault();
    openDrawer(drawerLink.getAttribute("href"));
  } else if (copyLink && plain) {
    event.preventDefault();
    const response = await fetch(copyLink.href);
    copyText(await response.text(), copyLink);
  } else if (addressLink && plain) {
    event.preventDefault();
    copyText(addressLink.href, addressLink);
  } else if (copyButton) {
    copyText(document.querySelector("[data-copy-source]").textContent, copyButton);
  } else if (event.target instanceof HTMLDialogElement) {
    event.target.close();
  }
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});

document.addEventListener("change", (event) => {
  const { form, selectedOptions } = event.target;
  const { sign } = selectedOptions?.[0]?.dataset ?? {};
  if (sign) form.elements.sign.value = sign; // the side on which the chosen metric is worse
  if (event.target.closest("[data-submit-on-change]") && form.checkValidity()) form.requestSubmit();
});

/** Show what needs scripts; load a box in a menu or below a chart when it is opened, any other box after the page. */
function prepare(root) {
  for (const part of root.querySelectorAll("[data-copy], [data-pick]")) part.hidden = false;
  for (const box of root.querySelectorAll("[data-later]")) {
    const menu = box.closest("details");
    if (menu) menu.addEventListener("toggle", () => load(box.dataset.later, box), { once: true });
    else if (document.readyState === "complete") requestIdleCallback(() => load(box.dataset.later, box));
    else addEventListener("load", () => requestIdleCallback(() => load(box.dataset.later, box)));
  }
}
prepare(document);

/** An opened menu stays in the window, wherever its button is. */
document.addEventListener("toggle", ({ target }) => {
  const panel = target.matches("details.menu[open]") && target.querySelector(".panel");
  if (!panel) return;
  panel.style.translate = "";
  const { left, right } = panel.getBoundingClientRect();
  panel.style.translate = `${Math.max(Math.min(0, root.clientWidth - 12 - right), 12 - left)}px`;
}, true);
document.addEventListener("loaded", (event) => prepare(event.target));

// The zone of all times: the server renders them; a choice is remembered in a cookie.
const zoneForm = document.querySelector("[data-zone]");
zoneForm?.closest("details").addEventListener("toggle", () => {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  document.getElementById("zones").append(Object.assign(document.createElement("option"), { value: own, label: "this browser" }));
}, { once: true });
zoneForm?.addEventListener("submit", () => {
  document.cookie = `tz=${zoneForm.elements.tz.value}; path=${root.dataset.root}; max-age=31536000; samesite=strict`;
});

// A picked date goes into the text field beside it, which also accepts -36h; both are in the zone of the page.
document.addEventListener("input", (event) => {
  if (event.target.dataset.pick && event.target.value) event.target.form.elements[event.target.dataset.pick].value = event.target.value.replace("T", " ");
});

// The keyboard map of the help dialog. Keys act only outside fields, without modifiers.
let prefix = "";

const typing = (target) => target.closest("input, textarea, select, [contenteditable]");
const click = (selector) => {
  const element = document.querySelector(selector);
  element?.click();
  return Boolean(element);
};

function moveRow(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return false;
  const index = rows.findIndex((row) => row.classList.contains("current"));
  const next = rows[Math.min(Math.max(index + step, 0), rows.length - 1)];
  for (const row of rows) row.classList.toggle("current", row === next);
  next.querySelector("[data-row-link]")?.focus();
  next.scrollIntoView({ block: "nearest" });
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
  ["/", () => openMenu(".find", "input")],
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

function startKeys() {
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
      const link = [...document.querySelectorAll("[data-go]")].find((link) => link.dataset.go === event.key);
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

// The toggle writes a cookie that the server reads: no flash of the other theme on the next page.
function startTheme() {
  const button = document.querySelector("[data-theme-toggle]");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme || (system.matches ? "dark" : "light");
  const announce = () => {
    button.textContent = current() === "dark" ? "Light" : "Dark";
    document.dispatchEvent(new CustomEvent("themechange"));
  };
  button.hidden = false;
  announce();
  system.addEventListener("change", announce);
  matchMedia("print").addEventListener("change", announce); // charts take the colours of paper
  button.addEventListener("click", () => {
    root.dataset.theme = current() === "dark" ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; path=${root.dataset.root}; max-age=31536000; samesite=strict`;
    announce();
  });
}

// Not scrollIntoView: the first Tab would start behind the shown link.
const here = document.querySelector("nav [aria-current]");
if (here) here.closest("nav").scrollLeft = here.offsetLeft - 80;
startTheme();
startKeys();
root.classList.add("js");

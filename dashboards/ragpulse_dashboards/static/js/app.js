// What every page has: fragments, drawer, copying, menus, keys, theme. One file: a page waits for its scripts, and each
// more takes a request. Pages load the modules they need beside it.

const root = document.documentElement;

/** Put a fragment of ours, read anew, into a box if it is still wanted; the server escaped it, and it has no scripts. */
export async function load(url, box, wanted = () => true) {
  const response = await fetch(url, { headers: { "HX-Request-Type": "partial" }, cache: "no-store" }); // in the cache it would hold up a visit of the same URL
  const text = await response.text();
  if (!(await wanted(response))) return;
  box.innerHTML = text;
  box.dispatchEvent(new CustomEvent("loaded", { bubbles: true }));
}

/** Open the drawer on a fragment; the URL also works as a page. */
export function openDrawer(url) {
  const drawer = document.getElementById("drawer");
  if (!drawer.open) drawer.showModal();
  return load(url, document.getElementById("drawer-body"));
}

/** Copy, and say so where the button is; the clipboard needs HTTPS or this computer, the older command does not. */
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
  const asked = event.submitter?.dataset.confirm;
  if (asked && !window.confirm(asked)) event.preventDefault();
});

document.addEventListener("change", (event) => {
  if (event.target.closest("[data-submit-on-change]")) event.target.form.requestSubmit();
});

for (const hidden of document.querySelectorAll("[data-copy][hidden]")) hidden.hidden = false;
/** What is in a menu or below a chart comes when that is opened, anything else when the page is there. */
function expectLater(root) {
  for (const box of root.querySelectorAll("[data-later]")) {
    const menu = box.closest("details");
    if (menu) menu.addEventListener("toggle", () => load(box.dataset.later, box), { once: true });
    else if (document.readyState === "complete") requestIdleCallback(() => load(box.dataset.later, box));
    else addEventListener("load", () => requestIdleCallback(() => load(box.dataset.later, box)));
  }
}
expectLater(document);
document.addEventListener("loaded", (event) => expectLater(event.target));

const clock = new Intl.DateTimeFormat("en", {
  month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});

/** The server writes UTC; here it becomes the time of this computer, with UTC on hover. */
function showLocalTimes(root) {
  for (const one of root.querySelectorAll("time[datetime]:not([title])")) {
    const moment = new Date(one.dateTime);
    if (Number.isNaN(moment.valueOf())) continue;
    one.title = `${one.textContent} UTC`;
    one.textContent = clock.format(moment).replace(",", "");
  }
}
showLocalTimes(document);
document.addEventListener("loaded", (event) => showLocalTimes(event.target));

// A picked date goes into the field beside it, which also takes -36h; what is picked is local time.
document.addEventListener("input", (event) => {
  const picked = event.target.dataset.pick && new Date(event.target.value);
  if (picked && !Number.isNaN(picked.valueOf())) event.target.form.elements[event.target.dataset.pick].value = picked.toISOString();
});
for (const picker of document.querySelectorAll("[data-pick]")) picker.hidden = false;

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
  matchMedia("print").addEventListener("change", announce); // what is drawn takes the colours of paper
  button.addEventListener("click", () => {
    root.dataset.theme = current() === "dark" ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; path=${root.dataset.root}; max-age=31536000; samesite=strict`;
    announce();
  });
}

// Not scrollIntoView: the first Tab would begin behind what it shows.
const here = document.querySelector("nav [aria-current]");
if (here) here.closest("nav").scrollLeft = here.offsetLeft - 80;
startTheme();
startKeys();
root.classList.add("js");

// What every page has: fragments, drawer, copying, menus. Pages load the modules they need beside it.
import { startKeys } from "./keys.js";
import { startTheme } from "./theme.js";

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

function copyText(text, button) {
  navigator.clipboard.writeText(text).then(() => {
    document.getElementById("announce").textContent = "Copied.";
    button.classList.add("copied");
  });
}

document.addEventListener("click", async (event) => {
  const drawerLink = event.target.closest("a[data-drawer]");
  const copyLink = event.target.closest("a[data-copy-href]");
  const copyButton = event.target.closest("[data-copy]");
  const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey;
  if (drawerLink && plain) {
    event.preventDefault();
    openDrawer(drawerLink.getAttribute("href"));
  } else if (copyLink && plain && navigator.clipboard) {
    event.preventDefault();
    const response = await fetch(copyLink.href);
    copyText(await response.text(), copyLink);
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
    else addEventListener("load", () => requestIdleCallback(() => load(box.dataset.later, box)));
  }
}
expectLater(document);
document.addEventListener("loaded", (event) => expectLater(event.target));
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
startTheme();
startKeys();
root.classList.add("js");

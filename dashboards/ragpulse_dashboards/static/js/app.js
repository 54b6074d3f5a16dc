// Joins the modules to the page; each one works on what it finds and leaves the rest alone.
import { startCharts } from "./charts.js";
import { startEvidence } from "./evidence.js";
import { startHeatmap } from "./heatmap.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startTheme } from "./theme.js";

document.documentElement.classList.add("js");

/** Open the drawer on a fragment of ours; the URL also works as a page. */
export function openDrawer(url) {
  const drawer = document.getElementById("drawer");
  if (!drawer.open) drawer.showModal();
  return htmx.ajax("GET", url, { target: "#drawer-body", swap: "innerHTML" });
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
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
startTheme();
startKeys();
startCharts(openDrawer);
startEvidence();
startHeatmap();
startLive();

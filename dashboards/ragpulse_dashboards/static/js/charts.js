// Charts on a page: one time axis for all, drag to ask why or to zoom, click or Enter for the examples behind a point.
import { load, openDrawer } from "./app.js";
import { drawPlot, forgetStyles } from "./plot.js";

/** An instant as forms have room for it. */
const instant = (seconds) => `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`;

/** The page's URL with another range; `back` keeps the relative range to return to. */
function zoomUrl(from, to) {
  const url = new URL(location.href);
  const before = url.searchParams.get("from") || "-24h";
  if (before.startsWith("-")) url.searchParams.set("back", before);
  url.searchParams.set("from", instant(from));
  url.searchParams.set("to", instant(to));
  url.searchParams.delete("cursor");
  return url;
}

function resetUrl() {
  const url = new URL(location.href);
  const back = url.searchParams.get("back");
  for (const name of ["from", "to", "back"]) url.searchParams.delete(name);
  if (back) url.searchParams.set("from", back);
  return url;
}

/** Why? of a stretch: the chart's own link, which keeps metric and filters, with the stretch marked. */
function whyUrl(link, from, to) {
  const url = new URL(link.href);
  url.searchParams.set("sel_from", instant(from));
  url.searchParams.set("sel_to", instant(to));
  return url;
}

function exemplarUrl(spec, index, line) {
  const url = new URL(`${document.documentElement.dataset.root}exemplars`, location.href);
  for (const [name, value] of new URL(location.href).searchParams) url.searchParams.append(name, value);
  url.searchParams.set("metric", line.metric || spec.metric);
  url.searchParams.set("t", new Date(spec.t[index] * 1000).toISOString());
  url.searchParams.set("step", spec.step);
  for (const [name, value] of Object.entries(line.group || {})) {
    if (value !== null && value !== "") url.searchParams.set(name, value);
  }
  return url.pathname + url.search;
}

const announce = document.getElementById("announce");
const plots = new Map();
const resized = new ResizeObserver((entries) => {
  for (const entry of entries) plots.get(entry.target)?.resize(Math.floor(entry.contentRect.width));
});

function draw(box, width) {
  const figure = box.closest("[data-chart]");
  const spec = JSON.parse(figure.dataset.chart);
  const why = figure.querySelector("[data-why]");
  const plot = drawPlot(box, spec, {
    links: (from, to) => [...(why ? [["Why?", whyUrl(why, from, to)]] : []), ["Zoom", zoomUrl(from, to)]],
    reset: () => location.assign(resetUrl()),
    open: (index, line) => openDrawer(exemplarUrl(spec, index, line)),
    say: (text) => { announce.textContent = text; },
  }, width);
  plots.set(box, plot);
  resized.observe(box);
}

/** What is in the window is drawn at once, the rest when nothing else is to do; places are read before anything is drawn. */
function drawAll(root) {
  for (const box of plots.keys()) {
    if (box.isConnected) continue;
    resized.unobserve(box);
    plots.delete(box);
  }
  const boxes = [...root.querySelectorAll("[data-plot]")].map((box) => [box, box.clientWidth || 420, box.getBoundingClientRect().top < innerHeight]);
  for (const [box, width, seen] of boxes) {
    if (seen) draw(box, width);
    else requestIdleCallback(() => draw(box, box.clientWidth || width));
  }
}

/** Whether somebody is at work in the page: then nothing is put in its place. */
const inUse = (more = "") => document.querySelector(`dialog[open], main details[open], main :focus, main :active${more}`) || !getSelection().isCollapsed;
const free = async () => {
  while (inUse()) await new Promise((done) => setTimeout(done, 200));
  return true;
};

drawAll(document);
const renew = document.querySelector("[data-renew]")?.dataset.renew;
if (renew) {
  // Figures that are there may stay as they are; what is still being read comes as soon as nobody is disturbed.
  const wanted = renew === "rest" ? free : (response) => response.ok && !inUse(", .u-over:hover");
  const place = () => document.getElementById("efficiency")?.getBoundingClientRect().top ?? 0;
  const ask = async () => {
    let before = 0;
    await load(location.href, document.getElementById("main"), async (response) => (await wanted(response)) && (before = place(), true));
    if (scrollY > 0) scrollBy(0, place() - before); // who has scrolled keeps what they look at
  };
  addEventListener("load", () => requestAnimationFrame(() => (renew === "rest" ? requestAnimationFrame(ask) : requestIdleCallback(ask))));
}
document.addEventListener("loaded", (event) => drawAll(event.target));
document.addEventListener("themechange", () => {
  forgetStyles();
  plots.forEach((plot) => plot.recolour());
});

/** What says the present is asked again as long as somebody sees it. */
for (const box of document.querySelectorAll("[data-every]")) {
  setInterval(() => {
    const now = document.querySelector(`[data-url="${CSS.escape(box.dataset.url)}"]`) || document.querySelector("[data-every]");
    if (!document.hidden && now) load(now.dataset.url, now, (response) => response.ok && !now.matches(":hover, :focus-within"));
  }, box.dataset.every * 1000);
}

// Charts on a page: one time axis for all; drag to explain or to zoom, click or press Enter for the examples of a point.
import { openDrawer } from "./app.js";
import { aheadOf, drawPlot, forgetStyles } from "./plot.js";

/** A time for an address, in the zone of the page. */
function instant(spec, seconds) {
  const ahead = aheadOf(spec, seconds);
  const text = new Date((seconds + ahead) * 1000).toISOString().slice(0, 19);
  if (!ahead) return `${text}Z`;
  return `${text}${ahead < 0 ? "-" : "+"}${new Date(Math.abs(ahead) * 1000).toISOString().slice(11, 16)}`;
}
/** Where ranges of the picker end that do not end now. */
const ENDS = new Map([["yesterday", "today"], ["last-week", "this-week"]]);

/** The page's URL with another range; `back` keeps the relative range to return to. */
function zoomUrl(spec, from, to) {
  const url = new URL(location.href);
  const before = url.searchParams.get("from") || "-24h";
  if (!/^\d/.test(before)) url.searchParams.set("back", before);
  url.searchParams.set("from", instant(spec, from));
  url.searchParams.set("to", instant(spec, to));
  url.searchParams.delete("cursor");
  return url;
}

function resetUrl() {
  const url = new URL(location.href);
  const back = url.searchParams.get("back");
  for (const name of ["from", "to", "back"]) url.searchParams.delete(name);
  if (back) url.searchParams.set("from", back);
  if (ENDS.has(back)) url.searchParams.set("to", ENDS.get(back));
  return url;
}

/** The chart's link to Explain, which keeps metric and filters, with the stretch marked. */
function whyUrl(spec, link, from, to) {
  const url = new URL(link.href);
  url.searchParams.delete("at");
  url.searchParams.set("sel_from", instant(spec, from));
  url.searchParams.set("sel_to", instant(spec, to));
  return url;
}

function exemplarUrl(spec, index, line) {
  const url = new URL(`${document.documentElement.dataset.root}exemplars`, location.href);
  for (const [name, value] of new URL(location.href).searchParams) url.searchParams.append(name, value);
  url.searchParams.set("metric", line.metric || spec.metric);
  url.searchParams.set("t", new Date(spec.t[index] * 1000).toISOString());
  url.searchParams.set("step", spec.ends[index] - spec.t[index]);
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
    links: (from, to) => [...(why ? [["Why?", whyUrl(spec, why, from, to)]] : []), ["Zoom", zoomUrl(spec, from, to)]],
    reset: () => location.assign(resetUrl()),
    open: (index, line) => openDrawer(exemplarUrl(spec, index, line)),
    say: (text) => { announce.textContent = text; },
  }, width);
  plots.set(box, plot);
  resized.observe(box);
}

/** Draw charts in the window at once and the others when idle; all positions are read before the first drawing. */
function drawAll(root) {
  for (const box of plots.keys()) {
    if (box.isConnected) continue;
    resized.unobserve(box);
    plots.delete(box);
  }
  const boxes = [...root.querySelectorAll("[data-plot]")].map((box) => [box, box.clientWidth || 420, box.getBoundingClientRect().top < innerHeight]);
  for (const [box, width, visible] of boxes) {
    if (visible) draw(box, width);
    else requestIdleCallback(() => box.isConnected && draw(box, box.clientWidth || width));
  }
}

drawAll(document);
document.addEventListener("loaded", (event) => drawAll(event.target));
// A sheet of paper is narrower than the window.
addEventListener("beforeprint", () => plots.forEach((plot) => plot.resize(640)));
addEventListener("afterprint", () => plots.forEach((plot, box) => plot.resize(box.clientWidth)));
document.addEventListener("themechange", () => {
  forgetStyles();
  plots.forEach((plot) => plot.recolour());
});

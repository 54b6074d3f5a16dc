// Charts on a page: one time axis for all, drag to zoom, click or Enter for the examples behind a point.
import { openDrawer } from "./app.js";
import { drawPlot } from "./plot.js";

/** The page's URL with another range; `back` keeps the relative range to return to. */
function zoomUrl(from, to) {
  const url = new URL(location.href);
  const before = url.searchParams.get("from") || "-24h";
  if (before.startsWith("-")) url.searchParams.set("back", before);
  url.searchParams.set("from", new Date(from * 1000).toISOString());
  url.searchParams.set("to", new Date(to * 1000).toISOString());
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

function exemplarUrl(spec, index, line) {
  const url = new URL("/exemplars", location.href);
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
  for (const entry of entries) plots.get(entry.target).resize(entry.contentRect.width);
});

function draw(figure) {
  const box = figure.querySelector("[data-plot]");
  const spec = JSON.parse(figure.dataset.chart);
  const plot = drawPlot(box, spec, {
    zoom: (from, to) => location.assign(zoomUrl(from, to)),
    reset: () => location.assign(resetUrl()),
    open: (index, line) => openDrawer(exemplarUrl(spec, index, line)),
    say: (text) => { announce.textContent = text; },
  });
  plots.set(box, plot);
  resized.observe(box);
}

/** What is in the window is drawn at once, the rest when nothing else is to do. */
function drawAll(root) {
  const figures = [...root.querySelectorAll("[data-chart]")];
  const seen = figures.filter((figure) => figure.getBoundingClientRect().top < innerHeight);
  for (const figure of seen) draw(figure);
  for (const figure of figures.slice(seen.length)) requestIdleCallback(() => draw(figure));
}

drawAll(document);
document.addEventListener("loaded", (event) => drawAll(event.target));
document.addEventListener("themechange", () => plots.forEach((plot) => plot.recolour()));

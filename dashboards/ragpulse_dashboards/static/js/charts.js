// Charts on a page: one time axis for all, drag to zoom, click or Enter for the examples behind a point.
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

export function startCharts(openDrawer) {
  const figures = [...document.querySelectorAll("[data-chart]")];
  const announce = document.getElementById("announce");
  const plots = figures.map((figure) => {
    const spec = JSON.parse(figure.dataset.chart);
    return drawPlot(figure.querySelector("[data-plot]"), spec, {
      zoom: (from, to) => location.assign(zoomUrl(from, to)),
      reset: () => location.assign(resetUrl()),
      open: (index, line) => openDrawer(exemplarUrl(spec, index, line)),
      say: (text) => { announce.textContent = text; },
    });
  });
  const resized = new ResizeObserver((entries) => {
    for (const entry of entries) plots.find((plot) => plot.box === entry.target)?.resize(entry.contentRect.width);
  });
  for (const plot of plots) resized.observe(plot.box);
  document.addEventListener("themechange", () => plots.forEach((plot) => plot.recolour()));
}

// Drag a box over the heatmap; the form below gets its edges and is sent.
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** The value at a fraction of an axis given by the lower edges of its bins. */
function edge(edges, index) {
  const step = edges.length > 1 ? edges[1] - edges[0] : 1;
  return index < edges.length ? edges[index] : edges[edges.length - 1] + step;
}

const instant = (time) => `${new Date(time).toISOString().slice(0, 19)}Z`;

function cellAt(svg, event, columns, rows) {
  const box = svg.getBoundingClientRect();
  return {
    x: clamp(Math.floor(((event.clientX - box.left) / box.width) * columns), 0, columns - 1),
    y: clamp(Math.floor(((event.clientY - box.top) / box.height) * rows), 0, rows - 1),
  };
}

function start(root) {
  const svg = root.querySelector("svg");
  const marked = root.querySelector("[data-marked]");
  const form = document.querySelector("[data-heat-form]");
  const times = JSON.parse(root.dataset.x).map((text) => Date.parse(text));
  const values = JSON.parse(root.dataset.y);
  let start = null;
  let region = null;

  const mark = (a, b) => {
    region = { x0: Math.min(a.x, b.x), x1: Math.max(a.x, b.x) + 1, y0: Math.min(a.y, b.y), y1: Math.max(a.y, b.y) + 1 };
    marked.setAttribute("x", region.x0);
    marked.setAttribute("y", region.y0);
    marked.setAttribute("width", region.x1 - region.x0);
    marked.setAttribute("height", region.y1 - region.y0);
  };
  const markSelection = () => {
    const { sel_from: from, sel_to: to, sel_lo: low, sel_hi: high } = form.elements;
    if (![from, to, low, high].some((field) => field.value)) return; // an empty field reaches to the edge
    const column = (time) => clamp(times.filter((begin) => begin < time).length - 1, 0, times.length - 1);
    const near = values.length > 1 ? (values[1] - values[0]) / 100 : 0; // bounds were rounded
    const row = (value) => values.length - 1 - clamp(values.filter((begin) => begin <= value).length - 1, 0, values.length - 1);
    mark({ x: from.value ? column(Date.parse(from.value) + 1) : 0, y: high.value ? row(Number(high.value) - near) : 0 },
      { x: to.value ? column(Date.parse(to.value)) : times.length - 1, y: low.value ? row(Number(low.value) + near) : values.length - 1 });
  };
  svg.addEventListener("pointerdown", (event) => {
    start = cellAt(svg, event, times.length, values.length);
    svg.setPointerCapture(event.pointerId);
    mark(start, start);
  });
  svg.addEventListener("pointermove", (event) => {
    if (start) mark(start, cellAt(svg, event, times.length, values.length));
  });
  svg.addEventListener("pointerup", () => {
    if (!start) return;
    start = null;
    // The outer rows hold all values beyond them: a box that reaches the edge has no bound there.
    const bound = (index, open) => (open ? "" : String(Number(values[index].toPrecision(6))));
    form.elements.sel_from.value = instant(times[region.x0]);
    form.elements.sel_to.value = instant(edge(times, region.x1));
    form.elements.sel_lo.value = bound(values.length - region.y1, region.y1 === values.length);
    form.elements.sel_hi.value = bound(values.length - region.y0, region.y0 === 0);
    form.requestSubmit();
  });
  markSelection();
}

const heatmap = document.querySelector("[data-heatmap]");
if (heatmap) start(heatmap);

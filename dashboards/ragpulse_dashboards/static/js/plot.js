// A uPlot chart with interval bands, hollow thin buckets, marked version breaks, a keyboard cursor and spoken values.
const heightOf = (spec) => (spec.tall ? (innerWidth > 1000 ? 430 : 260) : 168);
const styles = new Map(); // reading a style forces a layout, so each is read once
function css(name) {
  if (!styles.has(name)) styles.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return styles.get(name);
}
export const forgetStyles = () => styles.clear();
const colours = (number) => Array.from({ length: number }, (_, index) => css(`--c${index % 6}`));

const trim = (number) => String(Number(number.toPrecision(3)));
function compact(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)}G`;
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  return size >= 1e4 ? `${trim(value / 1e3)}k` : trim(value);
}
const units = new Map([
  ["ms", (value) => (value >= 1000 ? `${trim(value / 1000)} s` : `${trim(value)} ms`)],
  ["s", (value) => `${trim(value)} s`],
  ["usd", (value) => `$${value !== 0 && Math.abs(value) < 1 ? value.toPrecision(2) : trim(value)}`],
  ["ratio", (value) => value.toFixed(2)],
  ["share", (value) => `${trim(value * 100)} %`],
]);
const show = (unit, value) => (value === null || value === undefined ? "not measured" : (units.get(unit.toLowerCase()) || compact)(value));
const two = (number) => String(number).padStart(2, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]; // the first Intl of a page takes 20 ms
/** A moment as a date whose UTC parts are what the clock of the page shows. */
const shown = (spec, seconds) => new Date((seconds + aheadOf(spec, seconds)) * 1000);
export const aheadOf = ({ ahead }, seconds) => (ahead.findLast(([since]) => since <= seconds) ?? ahead[0])[1];
const day = (time) => `${MONTHS[time.getUTCMonth()]} ${time.getUTCDate()}`;
const DASHES = [[], [7, 3], [10, 3, 2, 3], [14, 4], [4, 4], [10, 3, 2, 3, 2, 3]]; // dashes tell lines apart without colours; dots are for targets
const clock = (time) => `${two(time.getUTCHours())}:${two(time.getUTCMinutes())}`;
/** 14:30 within a day; the date where a day begins. */
function timeTick(spec, seconds, step) {
  const time = shown(spec, seconds);
  return step >= 86400 || time % 86400000 === 0 ? day(time) : clock(time);
}

const scales = new Map([
  ["ms", (most) => (most >= 1000 ? [1000, "", " s"] : [1, "", " ms"])], ["s", () => [1, "", " s"]], ["usd", () => [1, "$", ""]],
  ["share", () => [0.01, "", " %"]], ["ratio", () => [1, "", ""]],
]);
const large = (most) => [[1e9, "", "G"], [1e6, "", "M"], [1e4, "", "k"]].find(([least]) => most >= least) ?? [1, "", ""];
/** Labels of an axis with as many digits as its step has: no two are equal, and none is rounded. */
export function tickLabels(unit, ticks, step) {
  const [size, before, after] = (scales.get(unit.toLowerCase()) || large)(Math.max(...ticks.map(Math.abs)));
  const scale = size === 1e4 ? 1e3 : size;
  let digits = 0;
  while (digits < 9 && Math.abs((step / scale) * 10 ** digits - Math.round((step / scale) * 10 ** digits)) > 1e-6) digits += 1;
  const most = ["ratio", "share"].includes(unit.toLowerCase()) ? 1 : Infinity; // the room above has no value
  return ticks.map((tick) => (tick > most + 1e-9 ? "" : `${before}${(tick / scale).toFixed(digits)}${after}`));
}

/** Columns for uPlot: per line its value and, where there is an interval, its edges; buckets that the range holds in part are drawn apart. */
function columns(spec) {
  const data = [spec.x];
  const roles = [null];
  const cut = spec.part.some(Boolean);
  const none = spec.bars ? undefined : null; // a bar's width is that of the gaps between values that are not undefined
  const near = (index) => spec.part[index] || (!spec.bars && (spec.part[index - 1] || spec.part[index + 1]));
  spec.lines.forEach((line, number) => {
    const drawn = { ...line, v: line.v.map((value, index) => (spec.part[index] ? none : value)), part: line.v.map((value, index) => (near(index) ? value : none)) };
    for (const role of [...(line.lo ? ["v", "lo", "hi"] : ["v"]), ...(cut ? ["part"] : [])]) {
      data.push(drawn[role]);
      roles.push({ number, role });
    }
  });
  return { data, roles };
}

function seriesOf(spec, roles, palette) {
  const { bars } = spec;
  const paths = bars ? uPlot.paths.bars({ size: [0.7, 14], align: 0 }) : undefined;
  return roles.map((entry) => {
    if (!entry) return {};
    if (entry.role !== "v" && entry.role !== "part") return { stroke: "transparent", width: 0, points: { show: false } };
    const colour = palette[entry.number];
    const part = entry.role === "part";
    const dash = part ? [2, 3] : bars ? undefined : DASHES[entry.number % 6];
    return { stroke: colour, width: bars ? +part : 1.75, fill: bars ? `${colour}${part ? "24" : ""}` : undefined, paths, dash, points: { show: false }, spanGaps: false };
  });
}

function bandsOf(roles, palette) {
  const bands = [];
  roles.forEach((entry, index) => {
    if (entry?.role === "lo") bands.push({ series: [index + 1, index], fill: `${palette[entry.number]}${palette.length > 2 ? "16" : "2e"}` });
  });
  return bands;
}

/** Circles: hollow where a value rests on few answers; a whisker where the band has no width. */
function drawPoints(plot, spec, roles, palette) {
  const { ctx } = plot;
  const ratio = devicePixelRatio || 1;
  const spacing = plot.bbox.width / Math.max(spec.t.length, 1) / ratio;
  ctx.save();
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.rect(plot.bbox.left - 4, plot.bbox.top - 4, plot.bbox.width + 8, plot.bbox.height + 8);
  ctx.clip();
  roles.forEach((entry) => {
    if (entry?.role !== "v") return;
    const line = spec.lines[entry.number];
    ctx.strokeStyle = palette[entry.number];
    ctx.lineWidth = 1.5 * ratio;
    spec.x.forEach((time, index) => {
      const value = line.v[index];
      if (value === null) return;
      const alone = (line.v[index - 1] ?? null) === null && (line.v[index + 1] ?? null) === null;
      const thin = line.thin?.[index];
      if (!alone && !thin && spacing < 9) return;
      const x = plot.valToPos(time, "x", true);
      const whisker = alone && line.lo && line.lo[index] !== null;
      if (whisker) {
        ctx.beginPath();
        ctx.moveTo(x, plot.valToPos(line.lo[index], "y", true));
        ctx.lineTo(x, plot.valToPos(line.hi[index], "y", true));
        ctx.stroke();
      }
      ctx.beginPath();
      ctx.arc(x, plot.valToPos(value, "y", true), (spacing < 9 ? 2 : 2.6) * ratio, 0, 2 * Math.PI);
      ctx.fillStyle = thin ? css("--card") : palette[entry.number];
      ctx.fill();
      ctx.stroke();
    });
  });
  ctx.restore();
}

/** Whether the curves are in the upper half between two positions: then a text goes below them, never below bars. */
function isHigh(plot, spec, left, right) {
  if (spec.bars) return false;
  const heights = spec.x.flatMap((time, index) => {
    const x = plot.valToPos(time, "x", true);
    return x < left || x > right ? [] : spec.lines.map((line) => line.v[index]).filter((value) => value !== null);
  });
  const { min, max } = plot.scales.y;
  return heights.reduce((sum, value) => sum + value, 0) > (heights.length * (min + max)) / 2;
}

function drawMarkers(plot, spec) {
  const { ctx } = plot;
  const ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.font = `${11 * ratio}px ${css("--sans")}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  const edge = plot.bbox.left + plot.bbox.width;
  const inside = spec.markers.map((marker) => ({ ...marker, x: Math.round(plot.valToPos(marker.t, "x", true)) })).filter(({ x }) => x >= plot.bbox.left && x <= edge);
  for (const { x } of inside) {
    ctx.strokeStyle = css("--muted");
    ctx.lineWidth = ratio;
    ctx.setLineDash([4 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, plot.bbox.top);
    ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
    ctx.stroke();
  }
  plot.flags = flagsOf(inside, (text) => ctx.measureText(text).width, plot.bbox.left, edge, ratio);
  for (const { text, left, width } of plot.flags) {
    const y = isHigh(plot, spec, left, left + width) ? plot.bbox.top + plot.bbox.height - 4 * ratio : plot.bbox.top + 10 * ratio;
    ctx.fillStyle = css("--card"); // legible over bars and bands as well
    ctx.fillRect(left - 2 * ratio, y - 10 * ratio, width + 4 * ratio, 13 * ratio);
    ctx.fillStyle = css("--muted");
    ctx.fillText(text, left, y);
  }
  ctx.restore();
}

/** Where the flags of markers (by x, in order) are drawn: within the edges, and one for several that would overlap. */
export function flagsOf(markers, widthOf, first, last, ratio) {
  const flags = [];
  const place = (of) => {
    const text = of.length > 1 ? `${of[0].label} +${of.length - 1}` : of[0].label;
    const width = widthOf(text);
    const right = of[0].x + 4 * ratio;
    return { of, text, width, left: Math.max(first, right + width > last ? of[0].x - 4 * ratio - width : right) };
  };
  for (const marker of markers) {
    flags.push(place([marker]));
    while (flags.length > 1 && flags.at(-1).left < flags.at(-2).left + flags.at(-2).width + 4 * ratio) {
      flags.splice(-2, 2, place(flags.slice(-2).flatMap(({ of }) => of)));
    }
  }
  return flags;
}

/** The level before the change, dashed through what came after. */
function drawLevel(plot, spec) {
  if (spec.level === null) return;
  const { ctx } = plot;
  const ratio = devicePixelRatio || 1;
  const y = plot.valToPos(spec.level, "y", true);
  ctx.save();
  ctx.strokeStyle = css("--muted");
  ctx.lineWidth = 1.5 * ratio;
  ctx.setLineDash([6 * ratio, 5 * ratio]);
  ctx.beginPath();
  ctx.moveTo(plot.bbox.left, y);
  ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
  ctx.stroke();
  ctx.restore();
}

/** A target's bound across the chart, named in the legend; a bound far above the data is not drawn, so that the data is readable. */
function drawTargets(plot, spec) {
  const { ctx } = plot;
  const ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.strokeStyle = css("--target");
  ctx.lineWidth = 1.5 * ratio;
  ctx.setLineDash([2 * ratio, 3 * ratio]);
  for (const target of spec.targets) {
    const y = Math.round(plot.valToPos(target.value, "y", true));
    if (y < plot.bbox.top || y > plot.bbox.top + plot.bbox.height) continue;
    ctx.beginPath();
    ctx.moveTo(plot.bbox.left, y);
    ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
    ctx.stroke();
  }
  ctx.restore();
}

function scaleY(spec) {
  const limits = spec.targets.map((target) => target.value).concat(spec.level ?? []);
  const ratio = (low, high) => [Math.max(0, Math.min(low - 0.05, 0.8, ...limits)), Math.min(1.02, Math.max(high + 0.05, 0.2, ...limits))];
  if (spec.unit === "ratio") {
    // The wide interval of a thin bucket is clipped, so that it does not flatten the others, if there are others.
    const thin = spec.lines.every((line) => line.v.every((value, index) => value === null || line.thin[index]));
    const seen = spec.lines.flatMap((line) => line.v.flatMap((value, index) => (value === null ? [] : line.lo && (thin || !line.thin[index]) ? [value, line.lo[index] ?? value, line.hi[index] ?? value] : [value])));
    return { range: () => (seen.length ? ratio(Math.min(...seen), Math.max(...seen)) : [0, 1]) };
  }
  return { range: (plot, low, high) => [0, high > 0 ? Math.max(high, ...limits.filter((limit) => limit < high * 3)) * 1.12 : 1] };
}

function options(spec, width, roles, palette, hooks) {
  const grid = { stroke: css("--line"), width: 1 };
  const axis = { stroke: css("--muted"), font: `11px ${css("--sans")}`, grid, ticks: { show: false } };
  return {
    width,
    height: heightOf(spec),
    padding: [8, 18, 0, 0],
    legend: { show: false },
    tzDate: (time) => uPlot.tzDate(shown(spec, time), "Etc/UTC"),
    scales: { x: { time: true, range: () => spec.range.every((edge) => edge !== null) ? spec.range : [spec.t[0] ?? 0, spec.t.at(-1) + spec.step] }, y: scaleY(spec) },
    axes: [{ ...axis, grid: { show: false }, size: 26, space: 64, values: (plot, ticks, at, space, step) => ticks.map((tick) => timeTick(spec, tick, step)) }, { ...axis, size: 52, values: (plot, ticks, at, space, step) => tickLabels(spec.unit, ticks, step) }],
    series: seriesOf(spec, roles, palette),
    bands: bandsOf(roles, palette),
    cursor: { sync: { key: "time" }, drag: { x: true, y: false, dist: 6, setScale: false }, points: { size: 7 }, y: false },
    hooks,
  };
}

/** The tooltip is set as text, because labels come from users. */
function fillTip(tip, spec, index, flags = []) {
  tip.replaceChildren();
  const head = document.createElement("div");
  const time = shown(spec, spec.t[index]);
  head.textContent = [`${day(time)}, ${clock(time)}`, spec.part[index]].filter(Boolean).join(", ");
  tip.append(head);
  const spoken = [head.textContent];
  for (const line of spec.lines) {
    const row = document.createElement("div");
    const value = document.createElement("b");
    value.textContent = show(spec.unit, line.v[index]);
    const details = [];
    if (line.lo && line.lo[index] !== null) details.push(`${show(spec.unit, line.lo[index])} to ${show(spec.unit, line.hi[index])}`);
    if (line.n[index] !== null) details.push(`n ${line.n[index]}`);
    if (line.thin?.[index]) details.push("few answers");
    row.append(line.label ? `${line.label} ` : "", value, details.length ? ` (${details.join(", ")})` : "");
    tip.append(row);
    spoken.push(row.textContent);
  }
  for (const marker of spec.markers) {
    if (!flags.includes(marker.text) && (marker.t < spec.t[index] || marker.t >= spec.ends[index])) continue;
    const row = document.createElement("div");
    row.textContent = `${clock(shown(spec, marker.t))} ${marker.text}`;
    tip.append(row);
    spoken.push(row.textContent);
  }
  return spoken.join("; ");
}

function placeTip(tip, plot, index, box) {
  const x = plot.valToPos(plot.data[0][index], "x") + plot.bbox.left / (devicePixelRatio || 1);
  const left = x > box.clientWidth / 2 ? x - tip.offsetWidth - 12 : x + 12;
  tip.style.left = `${Math.max(0, left)}px`;
  tip.style.top = "8px";
}

/** The line nearest to the pointer, for a click. */
function nearestLine(plot, spec, index, top) {
  const distance = (line) => (line.v[index] === null ? Infinity : Math.abs(plot.valToPos(line.v[index], "y") - (top ?? 0)));
  return spec.lines.reduce((best, line) => (distance(line) < distance(best) ? line : best), spec.lines[0]);
}

/** The actions on a marked stretch as links: they can open in a new tab, and Tab reaches them. */
function offer(state, links) {
  state.bar.replaceChildren(...links.map(([textContent, href]) => Object.assign(document.createElement("a"), { className: "button", textContent, href })));
  state.bar.hidden = !links.length;
}

function unmark(state) {
  state.anchor = null;
  state.plot.setSelect({ left: 0, width: 0 }, false);
  offer(state, []);
}

/** Mark the buckets from the anchor to the cursor as a drag would. */
function mark(state, spec, act) {
  const { plot } = state;
  const [first, last] = [state.anchor, state.index].sort((a, b) => a - b);
  const [from, to] = [spec.t[first], spec.ends[last]];
  const left = plot.valToPos(from, "x");
  plot.setSelect({ left, top: 0, width: plot.valToPos(to, "x") - left, height: plot.over.clientHeight }, false);
  offer(state, act.links(from, to));
}

function keyboard(box, state, spec, act) {
  const step = (by, marking) => {
    const { plot } = state;
    if (!marking) unmark(state);
    const before = state.index ?? (by > 0 ? -1 : spec.t.length);
    const next = Math.min(Math.max(before + by, 0), spec.t.length - 1);
    plot.setCursor({ left: plot.valToPos(spec.x[next], "x"), top: plot.bbox.height / 4 }, true);
    state.anchor = marking ? state.anchor ?? Math.min(Math.max(before, 0), spec.t.length - 1) : null;
    state.index = next;
    if (marking) mark(state, spec, act);
    act.say(fillTip(state.tip, spec, next) + (marking ? `; ${Math.abs(state.index - state.anchor) + 1} points marked` : ""));
  };
  const follow = (at, around) => {
    if (state.index === null) return;
    if (state.bar.hidden) {
      const near = (by) => Math.min(Math.max(state.index + by, 0), spec.t.length - 1);
      offer(state, act.links(spec.t[near(-around)], spec.ends[near(around)]));
    }
    [...state.bar.children].at(at)?.click();
  };
  const moves = new Map([
    ["ArrowRight", (shift) => step(1, shift)], ["ArrowLeft", (shift) => step(-1, shift)], ["PageDown", (shift) => step(10, shift)], ["PageUp", (shift) => step(-10, shift)],
    ["Home", (shift) => step(-spec.t.length, shift)], ["End", (shift) => step(spec.t.length, shift)],
    ["Enter", () => state.index !== null && act.open(state.index, nearestLine(state.plot, spec, state.index))],
    ["w", () => follow(0, 0)],
    ["z", () => follow(-1, 5)],
    ["Escape", () => unmark(state)],
    ["0", () => act.reset()],
  ]);
  box.addEventListener("keydown", (event) => {
    const move = event.target === box && moves.get(event.key);
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move(event.shiftKey);
  });
}

export function drawPlot(box, spec, act, width) {
  const { data, roles } = columns(spec);
  const state = { plot: null, tip: document.createElement("div"), bar: document.createElement("div"), index: null, anchor: null, dragging: false };
  Object.assign(state.tip, { className: "tip", hidden: true });
  Object.assign(state.bar, { className: "brush", hidden: true });
  if (!spec.t.length) return { box, resize() {}, recolour() {} };
  box.tabIndex = 0;
  box.setAttribute("role", "application");
  box.setAttribute("aria-roledescription", "chart");
  box.setAttribute("aria-label", `${spec.title} over time. Arrow keys read the points, Enter shows examples, shift with an arrow key marks a stretch, w explains it, z zooms; the table below holds the same figures.`);

  const build = () => {
    const palette = colours(spec.lines.length);
    const hooks = {
      draw: [(plot) => { drawTargets(plot, spec); drawLevel(plot, spec); drawMarkers(plot, spec); if (!spec.bars) drawPoints(plot, spec, roles, palette); }],
      setSelect: [(plot) => {
        const { left, width: long } = plot.select; // charts are synchronised: the others hear of a drag as well
        if (state.dragging && long > 6) offer(state, act.links(plot.posToVal(left, "x"), plot.posToVal(left + long, "x")));
        state.dragging = false;
      }],
      setCursor: [(plot) => {
        const index = plot.cursor.idx;
        const here = index !== null && index !== undefined && plot.cursor.left >= 0;
        const focused = box.matches(":hover") || box === document.activeElement;
        state.tip.hidden = !here || !focused;
        if (!here) return;
        state.index = index;
        if (!focused) return;
        const at = plot.cursor.left * (devicePixelRatio || 1) + plot.bbox.left;
        const near = (plot.flags ?? []).filter(({ of, left, width }) => at >= Math.min(left, of[0].x) - 4 && at <= left + width + 4);
        fillTip(state.tip, spec, index, near.flatMap(({ of }) => of.map(({ text }) => text)));
        placeTip(state.tip, plot, index, box);
      }],
    };
    state.plot?.destroy();
    state.plot = new uPlot(options(spec, width, roles, palette, hooks), data, box);
    const over = state.plot.over;
    let pending = 0;
    over.addEventListener("mousedown", () => {
      unmark(state);
      state.dragging = true;
    });
    over.addEventListener("dblclick", () => {
      clearTimeout(pending);
      act.reset();
    });
    over.addEventListener("click", (event) => {
      const { idx, top } = state.plot.cursor;
      if (event.detail !== 1 || idx === null || idx === undefined || state.plot.select.width) return;
      pending = setTimeout(() => act.open(idx, nearestLine(state.plot, spec, idx, top)), 220);
    });
  };
  build();
  box.append(state.tip, state.bar);
  box.addEventListener("blur", () => { state.tip.hidden = true; });
  keyboard(box, state, spec, act);
  const resize = (now) => {
    if (now <= 0 || now === width) return;
    width = now;
    state.plot.setSize({ width, height: heightOf(spec) });
  };
  return { box, resize, recolour: build };
}

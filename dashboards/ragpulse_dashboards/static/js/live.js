// A page that stays open is read again as a whole, `#live`, so that its sentences, counts, charts, rows and clock are of
// one reading. A person who is using it is offered the newer reading instead.
import { load } from "./app.js";

const SHARE = 4; // reading takes at most a fifth of the time, however long one reading takes
const MOVING_MS = 3000;
const main = document.getElementById("main");
const offer = document.querySelector("[data-offer]");
const shown = () => document.getElementById("live");
let newer; // a reading that is not shown yet
let source = "";
let moved = -MOVING_MS;

/** Whether a person would lose something: an open menu or table, a focus, a selection, a mark on a chart. */
const held = () =>
  document.querySelector("dialog[open], main details[open], #live :focus, main :active, .u-over:hover, .pick :checked")
  || !getSelection().isCollapsed;
/** Whether a person is about to click: not on a row that has just moved there. */
const moving = () => performance.now() - moved < MOVING_MS && !shown().dataset.renew;
for (const kind of ["pointermove", "wheel", "keydown"]) main.addEventListener(kind, () => { moved = performance.now(); }, { passive: true });

function say(text) {
  if (offer.textContent !== text) offer.textContent = text;
  offer.parentElement.hidden = !text;
}

/** Read the page with everything that it loads later; both are put into it together. */
async function read() {
  const response = await fetch(shown().dataset.url || location.href, { cache: "no-store", signal: AbortSignal.timeout(60_000) });
  if (!response.ok) throw new Error(response.statusText);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const boxes = [...page.querySelectorAll("#live [data-later]")].filter((box) => !box.closest("details"));
  await Promise.all(boxes.map((box) => load(box.dataset.later, box).then(() => box.removeAttribute("data-later"))));
  return page;
}

function put() {
  const page = newer;
  newer = undefined;
  say("");
  const known = new Set([...document.scripts].map((script) => script.getAttribute("src")));
  const next = page.getElementById("live");
  // Another page than this one (the first span has arrived, the collector is a newer one) needs its own scripts.
  if (!next || [...page.scripts].some((script) => script.hasAttribute("src") && !known.has(script.getAttribute("src")))) {
    location.reload();
    return;
  }
  const firing = "[data-go=a]";
  document.querySelector(firing).replaceWith(page.querySelector(firing));
  if (next.outerHTML === source) return;
  source = next.outerHTML;
  // What a person looks at stays where it is.
  const anchor = [...shown().querySelectorAll("[id]")].find((part) => part.getBoundingClientRect().bottom > 0);
  const before = anchor?.getBoundingClientRect().top;
  shown().replaceWith(next);
  next.dispatchEvent(new CustomEvent("loaded", { bubbles: true }));
  const after = anchor && document.getElementById(anchor.id);
  if (after && scrollY) scrollBy(0, after.getBoundingClientRect().top - before);
}

/** Show what was read as soon as nobody is disturbed. */
function settle() {
  if (!newer) return;
  const isHeld = held();
  if (!isHeld && !moving()) {
    put();
    return;
  }
  const more = newer.getElementById("live")?.dataset.count - shown().dataset.count;
  say(more > 0 ? `${more.toLocaleString("en")} new, show` : isHeld ? "Newer figures, show" : "");
}

async function turn() {
  const begun = performance.now();
  if (!document.hidden) newer = await read().catch(() => say("Not current: the collector does not answer"));
  settle();
  const every = 1000 * shown().dataset.live;
  if (every) setTimeout(turn, Math.max(every, SHARE * (performance.now() - begun)));
}

offer.addEventListener("click", () => newer && put());
setInterval(settle, 200);
const { renew, live } = shown().dataset;
if (renew) addEventListener("load", () => requestAnimationFrame(() => (renew === "rest" ? requestAnimationFrame(turn) : requestIdleCallback(turn))));
else if (live) setTimeout(turn, 1000 * live);

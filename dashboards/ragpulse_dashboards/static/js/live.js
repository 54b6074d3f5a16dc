// The live list: the server escapes the rows and limits their rate; a pause only stops the drawing.
const MAX_ROWS = 200;

const table = document.querySelector("[data-live]");
const body = table.tBodies[0];
const state = document.querySelector("[data-live-state]");
const dot = document.querySelector("[data-live-dot]");
const skippedText = document.querySelector("[data-live-skipped]");
const button = document.querySelector("[data-live-pause]");
let paused = false;
let skipped = 0;

const show = (text, alive) => {
  state.textContent = text;
  dot.classList.toggle("live", alive);
};
const skip = (number) => {
  skipped += number;
  skippedText.textContent = skipped ? `${skipped.toLocaleString("en")} skipped` : "";
};
const source = new EventSource(table.dataset.live);
source.addEventListener("open", () => show(paused ? "paused" : "live", !paused));
source.addEventListener("error", () => show("reconnecting", false));
source.addEventListener("problem", (event) => show(JSON.parse(event.data).message, false));
source.addEventListener("rows", (event) => {
  const { rows, skipped: more } = JSON.parse(event.data);
  if (paused) {
    skip(rows.length + more);
    return;
  }
  skip(more);
  body.querySelector("[data-empty]")?.remove();
  for (const row of rows) body.insertAdjacentHTML("afterbegin", row);
  while (body.rows.length > MAX_ROWS) body.rows[body.rows.length - 1].remove();
});
button.hidden = false;
button.addEventListener("click", () => {
  paused = !paused;
  button.textContent = paused ? "Resume" : "Pause";
  show(paused ? "paused" : "live", !paused);
});
addEventListener("pagehide", () => source.close());

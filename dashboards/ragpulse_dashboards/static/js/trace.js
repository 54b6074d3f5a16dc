// One trace: its parts as tabs, and evidence that lights up with its sentence.

const root = document.querySelector("[data-evidence]");
const links = [...document.querySelectorAll("[data-tabs] a")];
const panels = [...document.querySelectorAll("[data-tab]")];

/** Show the part that the URL names; without scripts all parts are below one another. */
function showTab() {
  const id = decodeURIComponent(location.hash.slice(1));
  const target = id ? document.getElementById(id) : null;
  const open = panels.filter((panel) => !panel.hidden);
  const current = target?.closest("[data-tab]") ?? (open.length === 1 ? open[0] : panels[0]);
  for (const panel of panels) panel.hidden = panel !== current;
  for (const link of links) {
    if (link.hash === `#${current.id}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  if (target && target !== current) target.scrollIntoView({ block: "nearest" });
}
for (const link of links) {
  link.addEventListener("click", (event) => {
    event.preventDefault(); // the URL changes, the scroll position does not
    history.replaceState(null, "", link.hash);
    showTab();
  });
}
addEventListener("hashchange", showTab);
showTab();

function light(numbers, on) {
  for (const mark of root.querySelectorAll("mark[data-for]")) {
    if (mark.dataset.for.split(" ").some((number) => numbers.includes(number))) mark.classList.toggle("lit", on);
  }
  for (const sentence of root.querySelectorAll("[data-sentence]")) {
    if (numbers.includes(sentence.dataset.sentence)) sentence.classList.toggle("lit", on);
  }
}

const numbers = (target) => {
  const sentence = target.closest?.("[data-sentence]");
  const mark = target.closest?.("mark[data-for]");
  return sentence ? [sentence.dataset.sentence] : mark ? mark.dataset.for.split(" ") : [];
};
for (const [begin, end] of [["mouseover", "mouseout"], ["focusin", "focusout"]]) {
  root.addEventListener(begin, (event) => light(numbers(event.target), true));
  root.addEventListener(end, (event) => light(numbers(event.target), false));
}
root.addEventListener("focusin", (event) => {
  const number = event.target.dataset?.sentence;
  const mark = number && root.querySelector(`mark[data-for~="${CSS.escape(number)}"]`);
  if (mark) mark.scrollIntoView({ block: "nearest" });
});

// A sentence under the pointer or the focus lights its evidence, and evidence lights its sentences.
function light(root, numbers, on) {
  for (const mark of root.querySelectorAll("mark[data-for]")) {
    if (mark.dataset.for.split(" ").some((number) => numbers.includes(number))) mark.classList.toggle("lit", on);
  }
  for (const sentence of root.querySelectorAll("[data-sentence]")) {
    if (numbers.includes(sentence.dataset.sentence)) sentence.classList.toggle("lit", on);
  }
}

const root = document.querySelector("[data-evidence]");
const numbers = (target) => {
  const sentence = target.closest?.("[data-sentence]");
  const mark = target.closest?.("mark[data-for]");
  return sentence ? [sentence.dataset.sentence] : mark ? mark.dataset.for.split(" ") : [];
};
for (const [begin, end] of [["mouseover", "mouseout"], ["focusin", "focusout"]]) {
  root.addEventListener(begin, (event) => light(root, numbers(event.target), true));
  root.addEventListener(end, (event) => light(root, numbers(event.target), false));
}
root.addEventListener("focusin", (event) => {
  const number = event.target.dataset?.sentence;
  const mark = number && root.querySelector(`mark[data-for~="${CSS.escape(number)}"]`);
  if (mark) mark.scrollIntoView({ block: "nearest" });
});

// The toggle writes a cookie that the server reads: no flash of the other theme on the next page.
export function startTheme() {
  const button = document.querySelector("[data-theme-toggle]");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const current = () => root.dataset.theme || (system.matches ? "dark" : "light");
  const announce = () => {
    button.textContent = current() === "dark" ? "Light" : "Dark";
    document.dispatchEvent(new CustomEvent("themechange"));
  };
  button.hidden = false;
  announce();
  system.addEventListener("change", announce);
  matchMedia("print").addEventListener("change", announce); // what is drawn takes the colours of paper
  button.addEventListener("click", () => {
    root.dataset.theme = current() === "dark" ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
    announce();
  });
}

// Before the first paint: the theme that was chosen here earlier; otherwise the system's.
(() => {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();

// Small things that a page is readable without: the theme's switch, countdowns, copying, the drawer.
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  const toggle = document.getElementById("theme");
  function showTheme() {
    toggle.setAttribute("aria-pressed", String(isDark()));
  }
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    showTheme();
  });
  showTheme();

  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  function wait(seconds) {
    const shown = [];
    for (const [name, size] of parts) {
      const count = Math.floor(seconds / size);
      seconds -= count * size;
      if (count || shown.length) shown.push(`${count} ${name}`);
      if (shown.length === 2) break;
    }
    return shown.join(" ") || "0 s";
  }
  function tick() {
    for (const place of document.querySelectorAll("[data-until]")) {
      const left = Number(place.dataset.until) - Date.now() / 1000;
      place.textContent = left > 0 ? wait(left) : place.dataset.after || "now";
    }
  }
  setInterval(tick, 1000);
  tick();
  document.addEventListener("htmx:afterSwap", tick);

  document.addEventListener("click", (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      navigator.clipboard.writeText(copy.dataset.copy).then(() => {
        copy.classList.add("copied");
        setTimeout(() => copy.classList.remove("copied"), 1200);
      });
    }
    if (event.target.closest("[data-close]")) document.getElementById("drawer").close();
  });

  const drawer = document.getElementById("drawer");
  if (drawer) {
    document.addEventListener("htmx:afterSwap", (event) => {
      if (event.target.id === "drawer-body" && !drawer.open) drawer.showModal();
    });
    drawer.addEventListener("click", (event) => {
      if (event.target === drawer) drawer.close();
    });
  }
})();

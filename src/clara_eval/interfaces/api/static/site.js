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
      if (left > 3e9) continue; // no calendar has it
      place.textContent = left > 0 ? wait(left) : place.dataset.after || "now";
      if (left <= -1 && Math.round(left) % 5 === -1) wake(place);
    }
  }
  // What was open has closed: the part of the page that says so is asked for again, every five seconds until it did.
  function wake(place) {
    const sleeping = place.closest("[data-wakes]") || document.querySelector("main > [data-wakes]");
    if (sleeping && window.htmx) htmx.trigger(sleeping, "wake");
  }
  function show() {
    tick();
    const titled = document.querySelector("main [data-title]") || document.querySelector("main[data-title]");
    if (titled) document.title = titled.dataset.title;
    for (const time of document.querySelectorAll("time[datetime]:not([title])")) {
      time.title = time.textContent;
      const at = new Date(time.dateTime);
      if (!isNaN(at)) time.textContent = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    }
  }
  if (/[?&]done=/.test(location.search)) history.replaceState(null, "", location.pathname); // said once
  setInterval(tick, 1000);
  show();
  document.addEventListener("htmx:afterSettle", show);
  document.addEventListener("htmx:sseMessage", show);

  document.addEventListener("click", (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      navigator.clipboard.writeText(copy.dataset.copy).then(() => {
        const label = copy.textContent === "Copied" ? copy.dataset.label : copy.textContent;
        copy.dataset.label = label;
        copy.classList.add("copied");
        copy.textContent = "Copied";
        copy.setAttribute("aria-live", "polite");
        setTimeout(() => { copy.classList.remove("copied"); copy.textContent = label; }, 1500);
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

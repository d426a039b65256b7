"use strict";

// Follows the page's events: at each, load the page again and change the parts
// that differ. Without events, or without this script, the page stays as it is.
(() => {
  const path = document.body.dataset.events;
  if (!path || !window.EventSource || !window.fetch) return;
  const said = document.getElementById("live");

  // A part that somebody writes or reads with the keyboard is left alone.
  function update(page) {
    for (const is of page.querySelectorAll("[data-live]")) {
      const was = document.getElementById(is.id);
      if (!was || was.isEqualNode(is) || was.contains(document.activeElement)) continue;
      for (const d of was.querySelectorAll("details[id]")) {
        const same = is.querySelector("#" + CSS.escape(d.id));
        if (same) same.open = d.open;
      }
      was.replaceWith(document.importNode(is, true));
    }
    document.title = page.title;
  }

  let loading = false, again = false;
  async function load() {
    if (loading || document.hidden) {
      again = true;
      return;
    }
    loading = true;
    again = false;
    try {
      const answer = await fetch(location.href);
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        update(page);
        if (!page.body.dataset.events) {
          source.close();
          if (said) said.textContent = "";
        }
      }
    } catch {
      // the stream's own error shows that the server is away
    }
    loading = false;
    if (again) load();
  }
  document.addEventListener("visibilitychange", () => { if (again && !document.hidden) load(); });

  const source = new EventSource(path);
  source.addEventListener("open", () => { if (said) said.textContent = "live"; });
  source.addEventListener("change", load);
  source.addEventListener("beat", load);
  source.addEventListener("error", () => { if (said) said.textContent = "not connected"; });
})();

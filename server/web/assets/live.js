"use strict";

// Follows the page's events: after each, load the page again and change the parts
// that differ. Without events, or without this script, the page stays as it is.
(() => {
  const { events, beats } = document.body.dataset;
  if (!events || !window.EventSource || !window.fetch) return;
  const said = document.getElementById("live");

  // All open pages hear of a change at once. They load at random moments within these
  // times, in milliseconds. A change is to be seen within 2 s, of which the server may
  // wait 1.5 before it sends the next event.
  const changeSpread = 300, beatSpread = 5000;

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

  let tag = "", loading = false, again = false, due = Infinity, timer = 0;

  function loadWithin(spread, wait = 0) {
    const at = performance.now() + wait + Math.random() * spread;
    if (at >= due) return; // it will be loaded earlier anyway
    clearTimeout(timer);
    due = at;
    timer = setTimeout(load, at - performance.now());
  }

  async function load() {
    due = Infinity;
    if (loading || document.hidden) {
      again = true;
      return;
    }
    loading = true;
    again = false;
    try {
      const answer = await fetch(location.href, { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        tag = answer.headers.get("ETag") || "";
        update(page);
        if (!page.body.dataset.events) {
          source.close();
          if (said) said.textContent = "";
        }
      } else if (answer.status === 429 || answer.status === 503) {
        loadWithin(beatSpread, 1000 * (Number(answer.headers.get("Retry-After")) || 5));
      }
    } catch {
      // the stream's own error shows that the server is away
    }
    loading = false;
    if (again) loadWithin(changeSpread);
  }
  document.addEventListener("visibilitychange", () => { if (again && !document.hidden) load(); });

  const source = new EventSource(events);
  source.addEventListener("open", () => { if (said) said.textContent = "live"; });
  source.addEventListener("change", () => loadWithin(changeSpread));
  if (beats !== undefined) source.addEventListener("beat", () => loadWithin(beatSpread));
  source.addEventListener("error", () => { if (said) said.textContent = "not connected"; });
})();

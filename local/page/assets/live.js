"use strict";

// Follows the page's events: at each, load the page again and change what
// differs. Without events (or without this script) the page stays as it is.
(() => {
  const touched = new WeakSet(); // <details> that the reader opened or closed

  // A line that the address names is in a group that may be closed, and stays open
  // when the page is loaded again.
  function openTarget() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const group = target && target.closest("details");
    if (group) touched.add(group); // the browser may have opened it by itself
    if (group && !group.open) {
      group.open = true;
      target.scrollIntoView({ block: "center" });
    }
  }
  addEventListener("hashchange", openTarget);
  openTarget();

  // "/" goes to the search field, as on many pages with one.
  document.addEventListener("keydown", (e) => {
    const search = document.querySelector("input[type=search]");
    if (e.key === "/" && search && !e.target.closest("input, select, textarea")) {
      e.preventDefault();
      search.focus();
    }
  });

  const path = document.body.dataset.events;
  if (!path || !window.EventSource) return;
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  const skew = Date.now() - Number(document.body.dataset.now);

  main.addEventListener("click", (e) => {
    const summary = e.target.closest("summary");
    if (summary) touched.add(summary.parentNode);
  });

  // Changes a node into what it is in the new page, and keeps what is alike.
  function patch(was, is) {
    if (was.isEqualNode(is)) return;
    if (was.nodeName === "FORM" && was.contains(document.activeElement)) return; // somebody writes in it
    if (was.nodeType !== Node.ELEMENT_NODE || was.nodeName !== is.nodeName) {
      was.replaceWith(is);
      return;
    }
    const kept = touched.has(was) ? "open" : "";
    for (const { name } of [...was.attributes])
      if (name !== kept && !is.hasAttribute(name)) was.removeAttribute(name);
    for (const { name, value } of [...is.attributes])
      if (name !== kept && was.getAttribute(name) !== value) was.setAttribute(name, value);
    const before = [...was.childNodes], after = [...is.childNodes];
    after.forEach((node, i) => (i < before.length ? patch(before[i], node) : was.append(node)));
    before.slice(after.length).forEach((node) => node.remove());
  }

  let loading = false, again = false;
  async function load() {
    if (loading) {
      again = true;
      return;
    }
    loading = true;
    const began = performance.now();
    try {
      const answer = await fetch(location.href);
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 8 && scrollY > 0;
        document.title = page.title;
        patch(main, page.getElementById("main"));
        if (atEnd) scrollTo(0, document.documentElement.scrollHeight);
      }
    } catch {
      // the stream's own error shows that the stand-in is away
    }
    // A page that is dear to make (a long log) is asked for less often: what
    // runs beside the stand-in is being timed.
    await new Promise((done) => setTimeout(done, 4 * (performance.now() - began)));
    loading = false;
    if (again) {
      again = false;
      load();
    }
  }

  function elapsed(ms) {
    const s = Math.max(0, Math.floor(ms / 1000)), two = (n) => String(n).padStart(2, "0");
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} m ${two(s % 60)} s`;
    if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} m`;
    return `${Math.floor(s / 86400)} d ${two(Math.floor(s / 3600) % 24)} h`;
  }
  setInterval(() => {
    for (const node of main.querySelectorAll("[data-since]"))
      node.textContent = elapsed(Date.now() - skew - Number(node.dataset.since));
  }, 1000);

  function say(text) {
    if (live.textContent !== text) live.textContent = text;
  }
  const source = new EventSource(path);
  source.addEventListener("open", () => { say("live"); load(); });
  source.addEventListener("change", load);
  source.addEventListener("beat", load);
  source.addEventListener("error", () => say("not connected"));
})();

package web

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gpu-mode/kbgen/internal/browsertest"
)

// A browser is one tab at the pages.
type browser struct {
	*browsertest.Tab
	t   *testing.T
	ctx context.Context
	url string
}

func (r *rig) open(t *testing.T) *browser {
	t.Helper()
	tab := browsertest.Open(t, 2*patience)
	b := &browser{Tab: tab, t: t, ctx: tab.Ctx, url: r.server.URL}
	b.run(network.Enable())
	return b
}

func (b *browser) run(actions ...chromedp.Action) { b.t.Helper(); b.Run(actions...) }

// as makes the browser a user's, "" being nobody's.
func (b *browser) as(r *rig, id string) {
	b.t.Helper()
	b.run(network.ClearBrowserCookies())
	if id != "" {
		b.run(network.SetCookie("kbserve_session", r.cookies[id]).WithURL(b.url))
	}
}

// size sets the window and the colours that its user prefers.
func (b *browser) size(width int64, scheme string) {
	b.t.Helper()
	b.Size(width, scheme)
}

func (b *browser) visit(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.url+path), chromedp.WaitReady("footer"))
}

// ask evaluates an expression.
func ask[T any](b *browser, expression string) (out T) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, &out))
	return out
}

// await waits until an expression is true, in the browser.
func (b *browser) await(expression string) {
	b.t.Helper()
	b.run(chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(patience)))
}

// quiet fails when the browser has complained: of the policy, a script, a file.
func (b *browser) quiet(what string) {
	b.t.Helper()
	for _, c := range b.Complaints() {
		b.t.Errorf("%s: the browser says: %s", what, c)
	}
}

func (b *browser) forget() { b.Complaints() }

// keep writes a picture of the whole page to where KBGEN_SCREENSHOTS says.
func (b *browser) keep(name string) {
	b.t.Helper()
	dir := os.Getenv("KBGEN_SCREENSHOTS")
	if dir == "" {
		return
	}
	var data []byte
	b.run(chromedp.FullScreenshot(&data, 100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), data, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// contrast lists texts that are hard to read: below 4.5 to 1 against what lies
// behind them.
const contrast = `(() => {
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return { r: m[0], g: m[1], b: m[2], a: m.length > 3 ? m[3] : 1 }; };
  const over = (f, b) => ({ r: f.r * f.a + b.r * (1 - f.a), g: f.g * f.a + b.g * (1 - f.a), b: f.b * f.a + b.b * (1 - f.a), a: 1 });
  const lum = (c) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(c.r) + 0.7152 * f(c.g) + 0.0722 * f(c.b); };
  const out = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent.trim(), el = walk.currentNode.parentElement;
    if (!text || !el.checkVisibility() || el.closest(".hidden, .skip, noscript, script, option, title, desc")) continue;
    const layers = [];
    for (let n = el; n; n = n.parentElement) layers.unshift(parse(getComputedStyle(n).backgroundColor));
    const ground = layers.reduce((b, f) => over(f, b), { r: 255, g: 255, b: 255, a: 1 });
    const style = getComputedStyle(el);
    const a = lum(over(parse(el.closest("svg") ? style.fill : style.color), ground)), b = lum(ground);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) out.push(text.slice(0, 40) + " " + ratio.toFixed(2));
  }
  return [...new Set(out)];
})()`

// sticking lists what reaches beyond the window's edge.
const sticking = `[...document.querySelectorAll("main *, header *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, pre, .source, .prose table, .hidden, caption")).map(e => e.tagName + "." + (e.className.baseVal ?? e.className)).slice(0, 6)`

// Every page fits every window, in both colour schemes, and can be read.
func TestPagesInABrowser(t *testing.T) {
	browsertest.Find(t)
	w := newWorld(t)
	b := w.open(t)
	grounds := map[string]string{}
	for _, page := range []struct{ name, as, path string }{
		{"start", "", "/"}, {"start-user", alice, "/"}, {"board", alice, "/b/matmul/H100"}, {"board-empty", "", "/b/matmul/MI300"}, {"board-closed", "", "/b/conv2d"},
		{"right", alice, submissionPath(w.right)}, {"wrong", alice, submissionPath(w.wrong)}, {"waiting", alice, submissionPath(w.waiting)}, {"running", bob, submissionPath(w.running)},
		{"foreign", alice, submissionPath(w.others)}, {"test", alice, submissionPath(w.test)}, {"log", alice, submissionPath(w.right) + "/log"}, {"queue", alice, "/queue"},
		{"user", "", "/u/" + bob}, {"self", alice, "/u/" + alice}, {"admin", boss, "/admin?invites=secret-lab"}, {"login", "", "/login"},
		{"error", "", "/nothing"},
	} {
		b.as(w.rig, page.as)
		for _, width := range []int64{390, 1280, 1920} {
			for _, scheme := range []string{"light", "dark"} {
				look := fmt.Sprintf("%s-%d-%s", page.name, width, scheme)
				b.size(width, scheme)
				b.visit(page.path)
				if wide := ask[int64](b, "document.documentElement.scrollWidth"); wide > width {
					t.Errorf("%s: the page is %d wide; beyond the edge: %v", look, wide, ask[[]string](b, sticking))
				}
				if bad := ask[[]string](b, contrast); len(bad) > 0 {
					t.Errorf("%s: hard to read: %q", look, bad)
				}
				grounds[scheme] = ask[string](b, "getComputedStyle(document.body).backgroundColor")
				b.keep(look)
				if page.name == "error" {
					b.forget() // that the page is an error
				}
				b.quiet(look)
			}
		}
		b.size(390, "light")
		b.run(chromedp.Evaluate(`document.documentElement.style.fontSize = "200%"`, nil))
		if wide := ask[int64](b, "document.documentElement.scrollWidth"); wide > 390 {
			t.Errorf("%s with text twice as large: the page is %d wide; beyond the edge: %v", page.name, wide, ask[[]string](b, sticking))
		}
		b.quiet(page.name)
		b.run(chromedp.Evaluate(`document.documentElement.style.fontSize = ""`, nil), emulation.SetEmulatedMedia().WithMedia("print"))
		b.keep(page.name + "-print")
		b.run(emulation.SetEmulatedMedia().WithMedia(""))
	}
	if grounds["light"] == grounds["dark"] {
		t.Errorf("both colour schemes have the ground %s", grounds["light"])
	}
}

// Everything is reached by keyboard, and it shows where one is.
func TestKeyboard(t *testing.T) {
	browsertest.Find(t)
	w := newWorld(t)
	b := w.open(t)
	b.as(w.rig, alice)
	b.size(1280, "light")
	b.visit("/")
	b.run(chromedp.KeyEvent(kb.Tab))
	if got := ask[string](b, "document.activeElement.className + ' ' + (document.activeElement.getBoundingClientRect().left >= 0)"); got != "skip true" {
		t.Errorf("the first Tab reaches %q, want the visible link that skips", got)
	}
	b.run(chromedp.KeyEvent(kb.Enter))
	b.await(`document.activeElement.id === "main"`)
	for _, path := range []string{"/", "/b/matmul/H100", submissionPath(w.right), "/u/" + alice} {
		b.visit(path)
		want := ask[int](b, `(window.walk = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']")].filter(e => e.checkVisibility() && e.tabIndex >= 0 && !e.matches(".skip"))).length`)
		seen := map[string]bool{}
		for range want + 8 {
			b.run(chromedp.KeyEvent(kb.Tab))
			at := ask[[]string](b, `(() => { const e = document.activeElement, s = getComputedStyle(e); return [String(walk.indexOf(e)), String(e.matches(":focus-visible") && s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1), e.outerHTML.slice(0, 120)]; })()`)
			if at[0] == "-1" {
				continue
			}
			seen[at[0]] = true
			if at[1] != "true" {
				t.Errorf("%s: nothing shows that the focus is on %s", path, at[2])
			}
		}
		for i := range want {
			if !seen[fmt.Sprint(i)] {
				t.Errorf("%s: Tab does not reach %s", path, ask[string](b, fmt.Sprintf("walk[%d].outerHTML.slice(0, 120)", i)))
			}
		}
	}
	b.quiet("keyboard")
}

// Handing a file in needs a keyboard only, and no script.
func TestSubmitInABrowser(t *testing.T) {
	browsertest.Find(t)
	for _, script := range []bool{true, false} {
		t.Run(fmt.Sprintf("script %v", script), func(t *testing.T) {
			w := newWorld(t)
			b := w.open(t)
			b.as(w.rig, alice)
			b.size(390, "light")
			b.run(emulation.SetScriptExecutionDisabled(!script))
			b.visit("/b/matmul/B200")
			file := filepath.Join(t.TempDir(), "mine.py")
			if err := os.WriteFile(file, []byte("def custom_kernel(data):\n    return data\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			b.run(chromedp.SetUploadFiles("#file", []string{file}, chromedp.ByQuery), chromedp.Focus("#mode", chromedp.ByQuery), chromedp.KeyEvent("t"), chromedp.KeyEvent(kb.Tab))
			response, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent(kb.Enter))
			if err != nil || response.Status != 200 {
				t.Fatal(response, err)
			}
			var at, text string
			b.run(chromedp.Location(&at), chromedp.Text("main", &text, chromedp.ByQuery))
			if !strings.Contains(at, "/s/") || !strings.Contains(text, "mine.py") || !strings.Contains(strings.ToLower(text), "test") {
				t.Errorf("submitting leads to %s: %.300s", at, text)
			}
			b.quiet("submit")
		})
	}
}

// A page that is open follows what happens.
func TestLivePage(t *testing.T) {
	browsertest.Find(t)
	w := newWorld(t)
	b := w.open(t)
	b.as(w.rig, alice)
	b.size(1280, "light")
	b.visit(submissionPath(w.waiting))
	b.await(`document.getElementById("live").textContent === "live"`)
	if err := w.backend.Cancel(b.ctx, w.backendViewer(alice), w.waiting); err != nil {
		t.Fatal(err)
	}
	b.await(`document.querySelector("main").innerText.includes("Cancelled by its submitter")`)
	b.await(`document.getElementById("live").textContent === ""`)
	b.quiet("live")
}

package web

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gpu-mode/kbgen/internal/browsertest"
	"github.com/gpu-mode/kbgen/internal/testenv"
)

// A browser is one tab at the pages.
type browser struct {
	*browsertest.Tab
	t   *testing.T
	ctx context.Context
}

func (r *rig) open(t *testing.T) *browser {
	t.Helper()
	tab := browsertest.Open(t, r.server.URL, 2*patience)
	b := &browser{Tab: tab, t: t, ctx: tab.Ctx}
	b.Run(network.Enable())
	return b
}

// as makes the browser a user's, "" being nobody's.
func (b *browser) as(r *rig, id string) {
	b.t.Helper()
	b.Run(network.ClearBrowserCookies())
	if id != "" {
		b.Run(network.SetCookie("kbserve_session", r.cookies[id]).WithURL(b.URL))
	}
}

// size sets the window and the colours that its user prefers.
func (b *browser) size(width int64, scheme string) {
	b.t.Helper()
	b.Size(width, scheme)
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
	b.Run(chromedp.FullScreenshot(&data, 100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), data, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// sticking lists what reaches beyond the window's edge.
const sticking = `[...document.querySelectorAll("main *, header *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, pre, .source, .prose table, .hidden, caption")).map(e => e.tagName + "." + (e.className.baseVal ?? e.className)).slice(0, 6)`

// Every page fits every window, in both colour schemes, and can be read.
func TestPagesInABrowser(t *testing.T) {
	pagesInABrowser(t, map[int64][]string{390: {"dark"}})
}

// TestSlowPagesInABrowser looks at every page in all widths and colour schemes.
func TestSlowPagesInABrowser(t *testing.T) {
	testenv.NeedSlow(t)
	both := []string{"light", "dark"}
	pagesInABrowser(t, map[int64][]string{390: both, 1280: both, 1920: both})
}

func pagesInABrowser(t *testing.T, looks map[int64][]string) {
	browsertest.Find(t)
	w := newWorld(t)
	b := w.open(t)
	grounds := map[string]string{}
	link, err := w.store.NewLink(t.Context(), alice, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []struct{ name, as, path string }{
		{"start", "", "/"}, {"start-user", alice, "/"}, {"board", alice, "/b/matmul/H100"}, {"board-empty", "", "/b/matmul/MI300"}, {"board-closed", "", "/b/conv2d"},
		{"right", alice, submissionPath(w.right)}, {"wrong", alice, submissionPath(w.wrong)}, {"waiting", alice, submissionPath(w.waiting)}, {"running", bob, submissionPath(w.running)},
		{"fault", alice, submissionPath(w.fault)}, {"foreign", alice, submissionPath(w.others)}, {"test", alice, submissionPath(w.test)}, {"log", alice, submissionPath(w.right) + "/log"}, {"queue", alice, "/queue"},
		{"user", "", "/u/" + bob}, {"self", alice, "/u/" + alice}, {"admin", boss, "/admin?invites=secret-lab"}, {"settings", boss, "/admin/b/matmul"}, {"about", boss, "/about"}, {"compare", alice, comparePath(w.right, w.test)}, {"login", "", "/login"},
		{"link", "", "/auth/link?token=" + link}, {"error-link", "", "/auth/link?token=used"}, {"error", "", "/nothing"},
	} {
		b.as(w.rig, page.as)
		for width, schemes := range looks {
			for _, scheme := range schemes {
				look := fmt.Sprintf("%s-%d-%s", page.name, width, scheme)
				b.size(width, scheme)
				b.Visit(page.path)
				if wide := browsertest.Ask[int64](b.Tab, "document.documentElement.scrollWidth"); wide > width {
					t.Errorf("%s: the page is %d wide; beyond the edge: %v", look, wide, browsertest.Ask[[]string](b.Tab, sticking))
				}
				if bad := browsertest.Ask[[]string](b.Tab, browsertest.Contrast); len(bad) > 0 {
					t.Errorf("%s: hard to read: %q", look, bad)
				}
				grounds[scheme] = browsertest.Ask[string](b.Tab, "getComputedStyle(document.body).backgroundColor")
				b.keep(look)
				if border := browsertest.Ask[string](b.Tab, `getComputedStyle(document.querySelector("main")).borderTopStyle`); border != "none" {
					t.Errorf("%s: main has the border of a block of code: %s", look, border)
				}
				if strings.HasPrefix(page.name, "error") {
					b.forget() // that the page is an error
				}
				b.quiet(look)
			}
		}
		b.size(390, "light")
		b.Run(chromedp.Evaluate(`document.documentElement.style.fontSize = "200%"`, nil))
		if wide := browsertest.Ask[int64](b.Tab, "document.documentElement.scrollWidth"); wide > 390 {
			t.Errorf("%s with text twice as large: the page is %d wide; beyond the edge: %v", page.name, wide, browsertest.Ask[[]string](b.Tab, sticking))
		}
		b.quiet(page.name)
		b.Run(chromedp.Evaluate(`document.documentElement.style.fontSize = ""`, nil), emulation.SetEmulatedMedia().WithMedia("print"))
		b.keep(page.name + "-print")
		b.Run(emulation.SetEmulatedMedia().WithMedia(""))
	}
	if grounds["light"] == grounds["dark"] {
		t.Errorf("both colour schemes have the ground %s", grounds["light"])
	}
}

// Everything is reached by keyboard, and it shows where one is.
func TestSlowKeyboard(t *testing.T) {
	testenv.NeedSlow(t)
	browsertest.Find(t)
	w := newWorld(t)
	b := w.open(t)
	b.as(w.rig, alice)
	b.size(1280, "light")
	b.Visit("/")
	b.Run(chromedp.KeyEvent(kb.Tab))
	if got := browsertest.Ask[string](b.Tab, "document.activeElement.className + ' ' + (document.activeElement.getBoundingClientRect().left >= 0)"); got != "skip true" {
		t.Errorf("the first Tab reaches %q, want the visible link that skips", got)
	}
	b.Run(chromedp.KeyEvent(kb.Enter))
	b.Await(`document.activeElement.id === "main"`)
	for _, path := range []string{"/", "/b/matmul/H100", submissionPath(w.right), "/u/" + alice} {
		b.Visit(path)
		want := browsertest.Ask[int](b.Tab, `(window.walk = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']")].filter(e => e.checkVisibility() && e.tabIndex >= 0 && !e.matches(".skip"))).length`)
		seen := map[string]bool{}
		for range want + 8 {
			b.Run(chromedp.KeyEvent(kb.Tab))
			at := browsertest.Ask[[]string](b.Tab, `(() => { const e = document.activeElement, s = getComputedStyle(e); return [String(walk.indexOf(e)), String(e.matches(":focus-visible") && s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1), e.outerHTML.slice(0, 120)]; })()`)
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
				t.Errorf("%s: Tab does not reach %s", path, browsertest.Ask[string](b.Tab, fmt.Sprintf("walk[%d].outerHTML.slice(0, 120)", i)))
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
			b.Run(emulation.SetScriptExecutionDisabled(!script))
			b.Visit("/b/matmul/B200")
			file := filepath.Join(t.TempDir(), "mine.py")
			if err := os.WriteFile(file, []byte("def custom_kernel(data):\n    return data\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			b.Run(chromedp.SetUploadFiles("#file", []string{file}, chromedp.ByQuery), chromedp.Focus("#mode", chromedp.ByQuery), chromedp.KeyEvent("t"), chromedp.KeyEvent(kb.Tab))
			response, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent(kb.Enter))
			if err != nil || response.Status != 200 {
				t.Fatal(response, err)
			}
			var at, text string
			b.Run(chromedp.Location(&at), chromedp.Text("main", &text, chromedp.ByQuery))
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
	b.Visit(submissionPath(w.waiting))
	b.Await(`document.getElementById("live").textContent === "live"`)
	if err := w.backend.Cancel(b.ctx, w.backendViewer(alice), w.waiting); err != nil {
		t.Fatal(err)
	}
	b.Await(`document.querySelector("main").innerText.includes("Cancelled by its submitter")`)
	b.Await(`document.getElementById("live").textContent === ""`)
	b.quiet("live")
}

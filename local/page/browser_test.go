package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gpu-mode/kbgen/internal/browsertest"
	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local/engine"
)

// A browser is one tab at the pages.
type browser struct {
	*browsertest.Tab
	t   *testing.T
	ctx context.Context
}

// open starts a browser that holds the pages' key.
func (w *rig) open() *browser {
	w.t.Helper()
	tab := browsertest.Open(w.t, w.server.URL, patience)
	b := &browser{Tab: tab, t: w.t, ctx: tab.Ctx}
	b.Run(chromedp.Navigate(w.server.URL + EnterPath + "?key=" + key))
	return b
}

// size sets the window and the colours that its user prefers.
func (b *browser) size(width int64, scheme string) {
	b.t.Helper()
	b.Size(width, scheme, &emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"})
}

// follow does what leads to another page, and waits for that.
func (b *browser) follow(action chromedp.Action) {
	b.t.Helper()
	if response, err := chromedp.RunResponse(b.ctx, action); err != nil || response.Status != 200 {
		b.t.Fatal(response, err)
	}
}

// shot takes a picture of the whole page. It is kept where KBGEN_SCREENSHOTS says.
func (b *browser) shot(name string, width int) {
	b.t.Helper()
	var data []byte
	b.Run(chromedp.FullScreenshot(&data, 100))
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		b.t.Fatal(err)
	}
	colours := map[color.Color]bool{}
	bounds := img.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y += 5 {
		for x := bounds.Min.X; x < bounds.Max.X; x += 5 {
			colours[img.At(x, y)] = true
		}
	}
	if bounds.Dx() != width || len(colours) < 20 {
		b.t.Errorf("%s: a picture %d wide with %d colours, want %d and what a page has", name, bounds.Dx(), len(colours), width)
	}
	if dir := os.Getenv("KBGEN_SCREENSHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), data, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
}

// quiet fails when the browser has complained: of the policy, a script, a file.
func (b *browser) quiet() {
	b.t.Helper()
	for _, c := range b.Complaints() {
		b.t.Errorf("the browser says: %s", c)
	}
}

// A gallery has builds of every look.
type gallery struct {
	*rig
	right, wrong, busy engine.Build
	job                engine.Job
	paths              map[string]string
}

func newGallery(t *testing.T) *gallery {
	t.Helper()
	g := &gallery{rig: newRig(t)}
	g.pipeline("kernelbot", `steps: [{label: ":rocket: Evaluate", key: evaluate, command: kbrun}]`)
	g.pipeline("release", `
notify: [{slack: "#kernels"}]
steps:
  - {label: ":package: Build", key: build, command: make}
  - wait
  - group: Tests
    steps:
      - {label: "On {{matrix}}", key: test, command: "test {{matrix}}", matrix: [linux, mac, windows]}
      - {label: Flaky, key: flaky, command: flaky, retry: {automatic: [{exit_status: 1, limit: 1}]}}
  - {block: ":shipit: Release?", key: go, prompt: "What is it called?", fields: [{text: Name, key: name, hint: "as in v1.2.3"}, {select: Channel, key: channel, default: beta, options: [{label: Beta, value: beta}, {label: Stable, value: stable}]}]}
  - {label: Ship, key: ship, command: ship}
`)
	a := g.agent("b200-1", "default")
	g.right, g.job = g.evaluated(a, "20261122-right", "right.py", true)
	g.wrong, _ = g.evaluated(a, "20261122-wrong", "wrong.py", false)

	stamp := func(ms int) string { return fmt.Sprintf("\x1b_bk;t=%d\x07", 1795362600000+ms) }
	var text strings.Builder
	text.WriteString(stamp(0) + "~~~ Preparing working directory\r\n" + stamp(3) + "$ cd /builds/kernelbot\r\n")
	text.WriteString(stamp(10) + "+++ Evaluating vectoradd_py\r\n")
	for i := range 12 {
		fmt.Fprintf(&text, "%s\x1b[32mcase %d\x1b[0m size: %d took \x1b[1m%d µs\x1b[0m\r\n", stamp(20+i*7), i, 1<<i, 40+i)
	}
	text.WriteString(stamp(200) + "a long line: " + strings.Repeat("0123456789 ", 30) + "\r\n")
	text.WriteString(stamp(210) + "--- Closed group\r\n" + stamp(211) + "inside\r\n" + stamp(212) + "deep inside\r\n")

	b := g.create("release", engine.NewBuild{Message: "v1.2.3 :tada:\n\nwith a second paragraph", Branch: "main", Creator: engine.Person{Name: "alice"}})
	one := g.start(a)
	g.rig.log(one, text.String())

	g.store(one, "plot.png", "image/png", picture(t))
	g.store(one, "out/report.txt", "text/plain", []byte("first line\nsecond line\n"))
	must[engine.Annotation](t)(g.engine.Annotate(b.ID, engine.Annotation{Context: "summary", Style: "success", Body: "### Built :tada:\n\n| target | size |\n|:--|--:|\n| linux | 9.1 MB |\n| mac | 9.4 MB |\n\n- [x] signed, see [the report](artifact://out/report.txt)\n- `sha256:ab12`\n\n![sizes](artifact://plot.png)\n\n<details><summary>More</summary>\n\nA <b>bold</b> word.\n\n</details>"}, false))
	must[engine.Annotation](t)(g.engine.Annotate(b.ID, engine.Annotation{Context: "careful", Style: "warning", Body: "The clock was **throttled** in `1` of 3 samples."}, false))
	g.finish(one, 0)
	for range 3 {
		g.finish(g.start(a), 0)
	}
	g.finish(g.start(a), 1)
	g.finish(g.start(a), 0)
	g.busy = must[engine.Build](t)(g.engine.BuildByID(b.ID))
	g.create("kernelbot", engine.NewBuild{Message: "Kernel eval: 20261122-next", MetaData: map[string]string{"run_id": "20261122-next", "gpu": "B200_BK", "mode": "test", "task": "sort_py", "file": "radix.cu"}})
	g.start(a)
	artifacts := must[[]engine.Artifact](t)(g.engine.BuildArtifacts(b.ID, false))
	g.paths = map[string]string{
		"index": "/", "right": "/gpu-mode/kernelbot/builds/1", "wrong": "/gpu-mode/kernelbot/builds/2", "release": "/gpu-mode/release/builds/1",
		"job":   "/gpu-mode/release/builds/1/jobs/" + one.ID,
		"image": "/gpu-mode/release/builds/1/artifacts/" + artifacts[0].ID, "text": "/gpu-mode/release/builds/1/artifacts/" + artifacts[1].ID,
		"nothing": "/?q=nothing+of+that+kind",
	}
	return g
}

// Every page fits every window, in both colour schemes, and can be read.
func TestPagesInABrowser(t *testing.T) {
	pagesInABrowser(t, map[int64][]string{390: {"dark"}, 1280: {"light"}})
}

// TestSlowPagesInABrowser looks at every page in both widths and colour schemes.
func TestSlowPagesInABrowser(t *testing.T) {
	testenv.NeedSlow(t)
	both := []string{"light", "dark"}
	pagesInABrowser(t, map[int64][]string{390: both, 1280: both})
}

func pagesInABrowser(t *testing.T, looks map[int64][]string) {
	browsertest.Find(t)
	g := newGallery(t)
	b := g.open()
	grounds := map[string]string{}
	for name, path := range g.paths {
		for width, schemes := range looks {
			for _, scheme := range schemes {
				look := fmt.Sprintf("%s-%d-%s", name, width, scheme)
				b.size(width, scheme)
				b.Visit(path)
				if wide := browsertest.Ask[int64](b.Tab, "document.documentElement.scrollWidth"); wide > width {
					t.Errorf("%s: the page is %d wide, %v stick out", look, wide, browsertest.Ask[[]string](b.Tab, fmt.Sprintf(
						"[...document.querySelectorAll('main *, header *')].filter(e => e.getBoundingClientRect().right > %d && !e.closest('.scroll, .body, .file, .log')).map(e => e.tagName + '.' + e.className).slice(0, 5)", width)))
				}
				if bad := browsertest.Ask[[]string](b.Tab, browsertest.Contrast); len(bad) > 0 {
					t.Errorf("%s: hard to read: %q", look, bad)
				}
				grounds[scheme] = browsertest.Ask[string](b.Tab, "getComputedStyle(document.body).backgroundColor")
				b.shot(look, int(width))
			}
		}
	}
	if grounds["light"] == grounds["dark"] {
		t.Errorf("both colour schemes have the ground %s", grounds["light"])
	}
	b.quiet()
}

// Lines of a log follow each other without a gap.
func TestLogLinePitch(t *testing.T) {
	browsertest.Find(t)
	g := newGallery(t)
	b := g.open()
	for _, width := range []int64{390, 1280} {
		b.size(width, "light")
		b.Visit(g.paths["job"])
		var lines []struct{ Top, Height, LineHeight float64 }
		data := browsertest.Ask[string](b.Tab, `JSON.stringify([...document.querySelectorAll(".log details[open] .lines > div")].map(e => ({Top: e.getBoundingClientRect().top, Height: e.getBoundingClientRect().height, LineHeight: parseFloat(getComputedStyle(e).lineHeight)})))`)
		if err := json.Unmarshal([]byte(data), &lines); err != nil || len(lines) != 13 {
			t.Fatalf("%d lines, %v", len(lines), err)
		}
		for i, line := range lines[:12] {
			if pitch := lines[i+1].Top - line.Top; math.Abs(pitch-line.LineHeight) > 1 || math.Abs(line.Height-line.LineHeight) > 1 {
				t.Errorf("at %d pixels line %d is %.1f high and the next %.1f below it, want %.1f", width, i, line.Height, pitch, line.LineHeight)
			}
		}
	}
	// A link to a line opens the group it is in.
	b.Visit("/") // from another page: a jump within one loads nothing that a visit could wait for
	b.Visit(g.paths["job"] + "#L18")
	b.Await(`document.getElementById("L18").checkVisibility() && document.getElementById("L18").matches(":target") && document.getElementById("L18").innerText != ""`) // it has a text once it is laid out
	if got := browsertest.Ask[string](b.Tab, `document.querySelector(":target").innerText`); !strings.Contains(got, "inside") {
		t.Errorf("line 18 is %q", got)
	}
	b.Run(chromedp.Click(`#L16 > a, #L5 > a`, chromedp.ByQuery))
	if got := browsertest.Ask[string](b.Tab, "location.hash"); got != "#L5" {
		t.Errorf("a click on a line's number leads to %q", got)
	}
	b.quiet()
}

// Everything is reached by keyboard, and it shows where one is.
func TestKeyboard(t *testing.T) {
	keyboard(t, func(g *gallery) []string { return []string{"/", g.paths["release"]} })
}

// TestSlowKeyboard walks over pages of every kind.
func TestSlowKeyboard(t *testing.T) {
	testenv.NeedSlow(t)
	keyboard(t, func(g *gallery) []string { return []string{"/", g.paths["release"], g.paths["job"], g.paths["right"]} })
}

func keyboard(t *testing.T, paths func(*gallery) []string) {
	browsertest.Find(t)
	g := newGallery(t)
	b := g.open()
	b.size(1280, "light")
	b.Visit("/")
	press := func(keys string) { t.Helper(); b.Run(chromedp.KeyEvent(keys)) }
	press(kb.Tab)
	if got := browsertest.Ask[string](b.Tab, "document.activeElement.className + ' ' + (document.activeElement.getBoundingClientRect().left >= 0)"); got != "skip true" {
		t.Errorf("the first Tab reaches %q, want the visible link that skips", got)
	}
	press(kb.Enter)
	b.Await(`document.activeElement.id === "main"`)
	for _, path := range paths(g) {
		b.Visit(path)
		want := browsertest.Ask[int](b.Tab, `(window.walk = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")].filter(e => e.checkVisibility() && e.tabIndex >= 0 && !e.matches(".skip") && !(e.type === "radio" && !e.checked))).length`)
		seen := map[string]bool{}
		for range want + 5 {
			press(kb.Tab)
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
			if !seen[strconv.Itoa(i)] {
				t.Errorf("%s: Tab does not reach %s", path, browsertest.Ask[string](b.Tab, fmt.Sprintf("walk[%d].outerHTML.slice(0, 120)", i)))
			}
		}
	}
	b.Visit("/")
	b.Run(input.DispatchKeyEvent(input.KeyRawDown).WithKey("/"), input.DispatchKeyEvent(input.KeyUp).WithKey("/"))
	press("wrong.py")
	b.follow(chromedp.KeyEvent(kb.Enter))
	if rows, search := browsertest.Ask[int](b.Tab, `document.querySelectorAll(".builds tbody tr").length`), browsertest.Ask[string](b.Tab, "location.search"); rows != 1 || !strings.Contains(search, "wrong.py") {
		t.Errorf("the search for wrong.py, %q, shows %d builds, want one", search, rows)
	}
	b.Run(chromedp.Focus(".builds th a"))
	b.follow(chromedp.KeyEvent(kb.Enter))
	if title := browsertest.Ask[string](b.Tab, "document.title"); !strings.HasPrefix(title, "wrong: vectoradd_py · wrong.py") {
		t.Errorf("Enter leads to %q", title)
	}
	b.quiet()
}

// Without JavaScript there is everything to read, and forms work.
func TestWithoutJavaScript(t *testing.T) {
	browsertest.Find(t)
	g := newGallery(t)
	b := g.open()
	b.size(1280, "light")
	b.Run(emulation.SetScriptExecutionDisabled(true))
	b.Visit(g.paths["job"])
	var text string
	b.Run(chromedp.Text("main", &text))
	if !strings.Contains(text, "case 11 size: 2048 took 51 µs") {
		t.Errorf("the log is not there:\n%s", text)
	}
	b.Visit("/")
	b.Run(chromedp.SendKeys(".filter input", "right.py"))
	b.follow(chromedp.Click(".filter button"))
	b.Run(chromedp.Text("main", &text, chromedp.ByQuery))
	if !strings.Contains(text, "right.py") || strings.Contains(text, "wrong.py") {
		t.Errorf("the search shows\n%s", text)
	}
	b.Visit(g.paths["release"])
	b.Run(chromedp.SendKeys(".answers input[type=text]", "v9"))
	events := g.engine.Subscribe()
	defer events.Close()
	b.Run(chromedp.Click(".answers button"))
	for ev := (engine.Event{}); ev.Job == nil || ev.Job.State != engine.JobUnblocked; {
		ev = must[engine.Event](t)(events.Next(b.ctx))
	}
	if got := must[engine.Build](t)(g.engine.BuildByID(g.busy.ID)); got.MetaData["name"] != "v9" || got.MetaData["channel"] != "beta" {
		t.Errorf("the form answered %v", got.MetaData)
	}
}

// A page follows what happens without being loaded anew, and leaves alone what
// somebody is writing.
func TestPageFollows(t *testing.T) {
	browsertest.Find(t)
	g := newGallery(t)
	b := g.open()
	b.size(1280, "light")
	b.Visit(g.paths["release"])
	b.Await(`document.getElementById("live").textContent === "live"`)
	b.Run(chromedp.SendKeys(".answers input[type=text]", "half a na"))
	must[engine.Annotation](t)(g.engine.Annotate(g.busy.ID, engine.Annotation{Context: "late", Style: "info", Body: "arrived later"}, false))
	b.Await(`document.body.innerText.includes("arrived later")`)
	if got := browsertest.Ask[string](b.Tab, `document.querySelector(".answers input[type=text]").value`); got != "half a na" {
		t.Errorf("the field holds %q after an update", got)
	}
	b.quiet()
}

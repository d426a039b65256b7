// Package browsertest opens a headless Chromium for tests of pages. It knows no page.
package browsertest

import (
	"context"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Find returns a browser to drive, and skips the test where there is none.
func Find(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("NOT RUN: no Chromium on PATH: apt-get install chromium")
	return ""
}

// A Tab is one tab of a headless Chromium, and what it complained about.
type Tab struct {
	T   *testing.T
	Ctx context.Context
	URL string // of the site

	patience   time.Duration
	mu         sync.Mutex
	complaints []string
}

// Open starts a browser for a site, which ends with the test. patience bounds
// everything that is asked of it: a busy machine starts it slowly.
func Open(t *testing.T, url string, patience time.Duration) *Tab {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(Find(t)), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true))
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // it ends one way or the other
		cancel()
		chromedp.FromContext(ctx).Allocator.Wait() // its files are in use until then
	})
	b := &Tab{T: t, Ctx: ctx, URL: url, patience: patience}
	chromedp.ListenTarget(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch ev := ev.(type) {
		case *log.EventEntryAdded:
			b.complaints = append(b.complaints, ev.Entry.Text+" "+ev.Entry.URL)
		case *runtime.EventExceptionThrown:
			b.complaints = append(b.complaints, ev.ExceptionDetails.Error())
		}
	})
	b.Run(log.Enable())
	return b
}

// Complaints returns what the browser complained about since it was asked last.
func (b *Tab) Complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.complaints
	b.complaints = nil
	return was
}

// Run does something in the tab; what does not work ends the test.
func (b *Tab) Run(actions ...chromedp.Action) {
	b.T.Helper()
	if err := chromedp.Run(b.Ctx, actions...); err != nil {
		b.T.Fatal(err)
	}
}

// Size sets the window and the colours that its user prefers, and what else they do.
func (b *Tab) Size(width int64, scheme string, more ...*emulation.MediaFeature) {
	b.T.Helper()
	features := append([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}, more...)
	b.Run(emulation.SetDeviceMetricsOverride(width, 900, 1, false), emulation.SetEmulatedMedia().WithFeatures(features))
}

// Visit opens a page of the site and waits for its end.
func (b *Tab) Visit(path string) {
	b.T.Helper()
	b.Run(chromedp.Navigate(b.URL+path), chromedp.WaitReady("footer"))
}

// Await waits until an expression is true, in the browser.
func (b *Tab) Await(expression string) {
	b.T.Helper()
	b.Run(chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(b.patience)))
}

// Ask evaluates an expression.
func Ask[T any](b *Tab, expression string) (out T) {
	b.T.Helper()
	b.Run(chromedp.Evaluate(expression, &out))
	return out
}

// Contrast is an expression that lists texts that are hard to read: below 4.5 to 1 against what lies
// behind them.
const Contrast = `(() => {
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return { r: m[0], g: m[1], b: m[2], a: m.length > 3 ? m[3] : 1 }; };
  const over = (f, b) => ({ r: f.r * f.a + b.r * (1 - f.a), g: f.g * f.a + b.g * (1 - f.a), b: f.b * f.a + b.b * (1 - f.a), a: 1 });
  const lum = (c) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(c.r) + 0.7152 * f(c.g) + 0.0722 * f(c.b); };
  const out = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent.trim(), el = walk.currentNode.parentElement;
    if (!text || !el.checkVisibility() || el.closest(".hidden, .skip, noscript, script, option, .superseded, title, desc")) continue;
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

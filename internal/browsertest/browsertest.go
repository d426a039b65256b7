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

	mu         sync.Mutex
	complaints []string
}

// Open starts a browser that ends with the test. patience bounds everything that is
// asked of it: a busy machine starts it slowly.
func Open(t *testing.T, patience time.Duration) *Tab {
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
	b := &Tab{T: t, Ctx: ctx}
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

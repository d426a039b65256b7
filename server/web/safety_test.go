package web

import (
	"fmt"
	"html"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
)

var (
	anyLink    = regexp.MustCompile(`(?:href|src|action|data-events)="([^"]*)"`)
	anyID      = regexp.MustCompile(` id="([^"]*)"`)
	labelledBy = regexp.MustCompile(`aria-labelledby="([^"]*)"`)
	heading    = regexp.MustCompile(`<h([1-6])`)
)

// crawl loads every page that links lead to, from the start page on, and hands each
// to look.
func (w *world) crawl(t *testing.T, as string, look func(path, page string)) {
	t.Helper()
	pages := map[string]string{}
	queue := []string{"/"}
	type jump struct{ from, to, anchor string }
	var jumps []jump
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		if _, seen := pages[path]; seen {
			continue
		}
		a := w.do(as, "GET", path, nil, nil)
		pages[path] = a.body
		if strings.Contains(path, "/log?") && a.StatusCode == http.StatusTooManyRequests {
			continue // only so many logs are read at once
		}
		if a.StatusCode != http.StatusOK {
			t.Errorf("as %q, a link leads to %s: %d", as, path, a.StatusCode)
		}
		if !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
			continue
		}
		look(path, a.body)
		for _, m := range anyLink.FindAllStringSubmatch(a.body, -1) {
			link := html.UnescapeString(m[1])
			switch {
			case strings.HasPrefix(link, "https://example.org/"), strings.HasPrefix(link, "/auth/"), strings.HasPrefix(link, "/events/"):
				continue
			case strings.Contains(m[0], "action=") && strings.Count(link, "/") > 2:
				continue // takes a POST only
			}
			to, anchor, _ := strings.Cut(link, "#")
			if to == "" {
				to = path
			}
			if !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") {
				t.Errorf("%s has a link to %q", path, link)
				continue
			}
			queue = append(queue, to)
			if anchor != "" {
				jumps = append(jumps, jump{path, to, anchor})
			}
		}
	}
	for _, j := range jumps {
		if !strings.Contains(pages[j.to], ` id="`+j.anchor+`"`) {
			t.Errorf("as %q, %s has a link to #%s of %s, which is not there", as, j.from, j.anchor, j.to)
		}
	}
	if len(pages) < 20 {
		t.Errorf("as %q, links lead to %d pages only", as, len(pages))
	}
}

// Every link leads somewhere, no page is broken, and none tells a secret.
func TestLinks(t *testing.T) {
	w := newWorld(t)
	cliID, err := w.store.NewCLIID(t.Context(), bob, "bob")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := w.store.Secret(t.Context(), "signing")
	if err != nil {
		t.Fatal(err)
	}
	canaries := map[string]string{"a CLI id": cliID, "a client's secret": "canary-client-secret", "a shared secret": string(secret), "a host's name": "canary-host"}
	for id, cookie := range w.cookies {
		canaries["the session of "+id] = cookie
	}
	for _, as := range []string{"", alice, boss} {
		t.Run("as "+as, func(t *testing.T) {
			w.crawl(t, as, func(path, page string) {
				for what, canary := range canaries {
					if strings.Contains(page, canary) {
						t.Errorf("%s tells %s", path, what)
					}
				}
				if as != boss && strings.Contains(page, w.code) {
					t.Errorf("%s tells an invite", path)
				}
				if as != boss && strings.Contains(page, "canary_code_of_bob") {
					t.Errorf("%s tells the code of somebody else", path)
				}
				if as != boss && as != alice && strings.Contains(page, "canary-printed") {
					t.Errorf("%s tells what a submission printed", path)
				}
				wellBuilt(t, path, page)
			})
		})
	}
	for what, canary := range canaries {
		if strings.Contains(w.log.String(), canary) {
			t.Errorf("the log tells %s", what)
		}
	}
}

// wellBuilt holds a page to what people who do not see it need.
func wellBuilt(t *testing.T, path, page string) {
	t.Helper()
	ids := map[string]bool{}
	for _, m := range anyID.FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			t.Errorf("%s has the id %q twice", path, m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range labelledBy.FindAllStringSubmatch(page, -1) {
		for id := range strings.FieldsSeq(m[1]) {
			if !ids[id] {
				t.Errorf("%s names something by %q, which is not there", path, id)
			}
		}
	}
	last := 0
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		level, _ := strconv.Atoi(m[1]) // one digit
		if level > last+1 || last == 0 && level != 1 {
			t.Errorf("%s has a heading of level %d after one of level %d", path, level, last)
		}
		last = level
	}
	if n := strings.Count(page, "<h1"); n != 1 {
		t.Errorf("%s has %d headings of level 1", path, n)
	}
	main, prose, _ := strings.Cut(page, `<div class="prose">`)
	_ = prose // a description's own tables have no captions
	if tables, captions := strings.Count(main, "<table"), strings.Count(main, "<caption"); tables != captions {
		t.Errorf("%s has %d tables and %d captions", path, tables, captions)
	}
	for _, banned := range []string{"<style", " style=\"", " onclick", "=\"javascript:", "<script>"} {
		if strings.Contains(page, banned) {
			t.Errorf("%s has %q", path, banned)
		}
	}
	if strings.Contains(main, "<th>") {
		t.Errorf("%s has a heading of a table without scope", path)
	}
}

func TestHeaders(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ as, path string }{{"", "/"}, {alice, "/b/matmul"}, {"", "/nothing"}, {"", "/robots.txt"}, {alice, "/code/" + fmt.Sprint(w.right)}, {"", "/admin"}} {
		a := w.do(c.as, "GET", c.path, nil, nil)
		for name, want := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"} {
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s has %s %q", c.path, name, got)
			}
		}
		if cache := a.Header.Get("Cache-Control"); c.as != "" && cache != "no-store" {
			t.Errorf("%s as %q may be kept: %q", c.path, c.as, cache)
		}
	}
	style := regexp.MustCompile(`/assets/style\.[0-9a-f]+\.css`).FindString(w.get("", "/"))
	a := w.do("", "GET", style, nil, nil)
	if a.StatusCode != 200 || a.Header.Get("ETag") == "" || !strings.Contains(a.Header.Get("Cache-Control"), "immutable") || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/css") {
		t.Errorf("%s: %d %v", style, a.StatusCode, a.Header)
	}
	if again := w.do("", "GET", style, nil, http.Header{"If-None-Match": {a.Header.Get("ETag")}}); again.StatusCode != 304 {
		t.Errorf("%s once more: %d, want 304", style, again.StatusCode)
	}
	for _, path := range []string{"/assets/style.css", "/assets/", "/assets/../web.go"} {
		if a := w.do("", "GET", path, nil, nil); a.StatusCode == 200 {
			t.Errorf("%s is there", path)
		}
	}
}

// No form does anything that a page of another site sends.
func TestForgery(t *testing.T) {
	w := newWorld(t)
	body := url.Values{"do": {"stop"}, "gpu": {"B200"}, "mode": {"test"}}.Encode()
	for _, path := range []string{"/b/matmul", submissionPath(w.right) + "/delete", submissionPath(w.waiting) + "/cancel", "/u/" + alice, "/admin", submissionPath(w.right) + "/hacked"} {
		for _, as := range []string{"", alice, boss} {
			for _, header := range []string{"Origin: https://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"} {
				name, value, _ := strings.Cut(header, ": ")
				a := w.do(as, "POST", path, strings.NewReader(body), http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, name: {value}})
				if a.StatusCode != 403 {
					t.Errorf("POST %s as %q with %s: %d, want 403", path, as, header, a.StatusCode)
				}
			}
		}
	}
	if on, err := w.store.Accepting(t.Context()); err != nil || !on {
		t.Errorf("a forged form has stopped submissions: %v, %v", on, err)
	}
	has(t, "the submission that forged forms would have deleted", w.get(alice, submissionPath(w.right)), "Ranks on")
}

// What people write stays text, whatever they write.
func TestHostileTexts(t *testing.T) {
	const script = `<script>alert("x")</script><img src=x onerror=alert(1)>`
	nasty := []string{script, "\u202egnp.exe\u2066 \u200f", strings.Repeat("W", 10_000), "👩‍🚀🏴‍☠️" + strings.Repeat("e\u0301\u0301\u0301", 40), "' OR 1=1 --\x1b[31m\n\nnew line", "{{.Token}}"}
	w := newRig(t)
	w.login(alice, "alice")
	w.login(boss, "boss")
	b := board("hostile", "H100", `B"200 <b>`)
	b.Description = script + "\n\n[a](javascript:alert(1)) ![b](https://evil.example/pixel.png) <iframe src=/></iframe>\n\n```\n" + script + "\n```\n\n[c](data:text/html,x)\n"
	b.Task.Templates = []task.Template{{Language: "Python", Text: script}}
	w.save(b)
	var ids []int64
	for i, name := range nasty {
		w.login(fmt.Sprint(200+i), name)
		file := strings.ReplaceAll(text.Line(name, 80), "/", "") + ".py" // the store takes no other
		ids = append(ids, w.accept(store.Submission{Board: "hostile", GPU: b.GPUs[i%2], UserID: fmt.Sprint(200 + i), UserName: name, FileName: file, Code: []byte("# " + strings.ReplaceAll(name, "\n", " ") + "\n")}))
	}
	w.evaluate(func(p store.PlannedRun) *schema.Result {
		nasty := nasty[p.Submission%int64(len(nasty))]
		r := result("H100", 5000+float64(p.Submission))
		r.System.GPU, r.System.CPU, r.Versions.Image, r.Device.Driver = nasty, nasty, nasty, nasty
		r.Harness.Variant = nasty
		r.Runs[1].Run.Stderr, r.Runs[2].Run.Result = nasty, append(schema.Report{{Key: "benchmark.7.spec", Value: nasty}, {Key: "benchmark.7.mean", Value: nasty}, {Key: "benchmark.7.status", Value: "fail"}, {Key: "benchmark.7.error", Value: nasty}}, r.Runs[2].Run.Result...)
		r.Explanation = &schema.Explanation{File: nasty, Line: 3, Error: nasty, Printed: nasty, Traceback: []string{nasty}}
		r.Ambiguous = []string{nasty}
		return r
	})
	w.accept(store.Submission{Board: "hostile", GPU: b.GPUs[0], UserID: "200"})
	w.queue.gpus = b.GPUs
	w.queue.off[b.GPUs[1]] = script
	w.queue.log = script + "\x1b]0;title\x07\u202e"
	paths := []string{"/", "/b/hostile", "/b/hostile/H100", "/b/hostile/" + url.PathEscape(b.GPUs[1]), "/queue", "/admin", "/admin?q=" + url.QueryEscape(script) + "&invites=hostile", "/login?next=" + url.QueryEscape("/"+script)}
	for i, id := range ids {
		paths = append(paths, submissionPath(id), submissionPath(id)+"/log?run=", fmt.Sprintf("/u/%d?board=%s", 200+i, url.QueryEscape(script)))
	}
	for _, path := range paths {
		page := w.get(boss, path)
		wellBuilt(t, path, page)
		lacks(t, path, page, "<img src=x", "<iframe", "src=\"https:", "href=\"data:")
		shown, _, _ := strings.Cut(page, `<section aria-labelledby="code">`) // which is shown whole
		lacks(t, path, shown, strings.Repeat("W", 8_001))
		for _, r := range page {
			if unicode.Is(unicode.Bidi_Control, r) || unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Errorf("%s has the character %U", path, r)
				break
			}
		}
	}
	for _, path := range []string{"/b/%00", "/b/" + url.PathEscape(script), "/u/%ff", "/b/hostile/%2e%2e", "/s/-1", "/b/hostile?page=-5", "/queue?x=" + strings.Repeat("y", 10_000), "/u/200?before=x&board=%ff"} {
		if a := w.do(boss, "GET", path, nil, nil); a.StatusCode >= 500 {
			t.Errorf("GET %s: %d", path, a.StatusCode)
		} else {
			lacks(t, path, a.body, "<script>")
		}
	}
}

func TestDescribe(t *testing.T) {
	for markup, want := range map[string]string{
		"":                               "",
		"one\n\ntwo":                     "<p>one</p>\n<p>two</p>\n",
		"# big\n\n###### small":          "<h3>big</h3>\n<h3>small</h3>\n",
		"a <b>bold</b> `<c>`":            "<p>a bold <code>&lt;c&gt;</code></p>\n",
		"[x](javascript:alert(1))":       "<p>x</p>\n",
		"![x](https://example.org/p)":    `<p><a href="https://example.org/p" rel="nofollow noreferrer">x</a></p>` + "\n",
		"<script>alert(1)</script>\n":    "\n",
		strings.Repeat("*_[", 5000):      "<pre>" + strings.Repeat("*_[", 5000) + "</pre>",
		"\u202eevil\x1b[31m <img src=x>": "<p>evil </p>\n",
	} {
		if got := string(describe(markup)); got != want {
			t.Errorf("describe(%.60q) = %.200q, want %.200q", markup, got, want)
		}
	}
	if got := describe(strings.Repeat("word ", 100_000)); len(got) > maxDescription+100 {
		t.Errorf("a long description has %d bytes", len(got))
	}
}

// Each colour of a text can be read on each ground that it stands on, in both
// themes: WCAG 2.2, 1.4.3 and 1.4.11 (AA).
func TestContrast(t *testing.T) {
	css, err := assetFiles.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, found := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	if !found {
		t.Fatal("there is no dark theme")
	}
	dark, _, _ = strings.Cut(dark, "*, ::before")
	property := regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6})`)
	for name, theme := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]float64{}
		for _, m := range property.FindAllStringSubmatch(theme, -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		for want, pairs := range map[float64][]string{
			4.5: {"text ground", "text panel", "text well", "text hover", "text accent-ground", "quiet ground", "quiet panel", "quiet hover", "quiet well", "quiet accent-ground",
				"accent ground", "accent panel", "accent hover", "accent accent-ground", "on-accent accent", "good good-ground", "bad bad-ground", "bad panel", "bad hover", "warn warn-ground", "idle idle-ground"},
			3: {"edge ground", "edge panel", "good panel", "warn panel"}, // 1.4.11: fields, lines of charts, marks
		} {
			for _, pair := range pairs {
				front, back, _ := strings.Cut(pair, " ")
				a, there := colours[front]
				b, too := colours[back]
				if !there || !too {
					t.Errorf("%s: no colours for %q", name, pair)
				} else if ratio := (max(a, b) + .05) / (min(a, b) + .05); ratio < want {
					t.Errorf("%s: %s has a contrast of %.2f, want %.1f", name, pair, ratio, want)
				}
			}
		}
	}
}

func luminance(t *testing.T, hex string) (sum float64) {
	t.Helper()
	for i, share := range []float64{.2126, .7152, .0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		v := float64(n) / 255
		if v <= .04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+.055)/1.055, 2.4)
		}
		sum += share * v
	}
	return sum
}

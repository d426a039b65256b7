package web

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store"
)

// A page that has not changed is answered with 304, one that has is not; nobody gets
// the page of somebody else.
func TestConditionalPages(t *testing.T) {
	w := newRig(t)
	w.login(alice, "alice")
	w.save(board("sort", "H100"))
	for _, as := range []string{"", alice} {
		changed, stop := w.backend.Watch(store.Signal{Kind: store.SignalBoard, ID: "sort"})
		var tag string
		for deadline := time.Now().Add(patience); ; { // a page with "2 s ago" is another a second later
			tag = w.do(as, "GET", "/b/sort/H100", nil, nil).Header.Get("ETag")
			if !strings.HasPrefix(tag, `W/"`) {
				t.Fatalf("as %q: ETag %q", as, tag)
			}
			a := w.do(as, "GET", "/b/sort/H100", nil, http.Header{"If-None-Match": {tag}})
			if a.StatusCode == 304 && a.body == "" && a.Header.Get("Content-Length") == "" {
				break
			}
			if a.StatusCode != 200 || time.Now().After(deadline) {
				t.Fatalf("as %q, the same page: %d %v", as, a.StatusCode, a.Header)
			}
		}
		w.accept(store.Submission{Board: "sort", GPU: "H100", UserID: "300", UserName: "newcomer" + as})
		w.evaluate(func(p store.PlannedRun) *schema.Result { return result(p.GPU, 5000) })
		<-changed
		stop()
		for deadline := time.Now().Add(patience); ; { // the evaluation sends more than one signal
			a := w.do(as, "GET", "/b/sort/H100", nil, http.Header{"If-None-Match": {tag}})
			if a.StatusCode == 200 && strings.Contains(a.body, "newcomer"+as) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("as %q, the page does not show the change: %d", as, a.StatusCode)
			}
		}
	}
	w.accept(store.Submission{Board: "sort", GPU: "H100", UserID: alice, FileName: "mine.py"})
	has(t, "alice's page", w.get(alice, "/b/sort/H100"), "Your submissions", "mine.py")
	lacks(t, "the page for everybody, after alice's", w.get("", "/b/sort/H100"), "Your submissions", "mine.py")
	if a := w.do("", "GET", "/b/nothing", nil, nil); a.StatusCode != 404 || a.Header.Get("ETag") != "" {
		t.Errorf("a page that is not there: %d, ETag %q", a.StatusCode, a.Header.Get("ETag"))
	}
}

// Pages that all viewers share are compressed once; those of a user are not, because
// they hold what others wrote beside what is secret.
func TestSharedPagesAreCompressed(t *testing.T) {
	w := newRig(t)
	w.login(alice, "alice")
	w.save(board("sort", "H100"))
	plain := w.do("", "GET", "/b/sort", nil, http.Header{"Accept-Encoding": {"identity"}})
	zipped := w.do("", "GET", "/b/sort", nil, http.Header{"Accept-Encoding": {"gzip, deflate, br"}})
	if plain.Header.Get("Content-Encoding") != "" || zipped.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("encodings %q and %q", plain.Header.Get("Content-Encoding"), zipped.Header.Get("Content-Encoding"))
	}
	z, err := gzip.NewReader(strings.NewReader(zipped.body))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || string(text) != plain.body {
		t.Errorf("unpacked it is another page: %v", err)
	}
	if a := w.do(alice, "GET", "/b/sort", nil, http.Header{"Accept-Encoding": {"gzip"}}); a.Header.Get("Content-Encoding") != "" {
		t.Error("a user's page is compressed")
	}
}

// The cache holds a number of pages, and none for queries that anybody can make up.
func TestSharedPagesAreBounded(t *testing.T) {
	var c shared
	for i := range 3 * maxShared {
		c.at("/b/" + strings.Repeat("x", i))
	}
	if len(c.pages) > maxShared {
		t.Errorf("%d pages are cached", len(c.pages))
	}
	for query, want := range map[string]bool{"": true, "page=2": true, "page=10000": false, "page=0": false, "x=1": false, "page=2&x": false} {
		if got := plainQuery.MatchString(query); got != want {
			t.Errorf("plainQuery of %q: %v", query, got)
		}
	}
}

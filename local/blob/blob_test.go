package blob

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

// A rig is a store with a running job that may announce artifacts.
type rig struct {
	engine *engine.Engine
	store  *Store
	url    string
	dir    string
	job    string
	passed atomic.Int64 // of the engine's time, nanoseconds
}

func newRig(t *testing.T) *rig {
	t.Helper()
	w := &rig{dir: t.TempDir()}
	start := time.Now()
	e, err := engine.New(engine.Options{Dir: w.dir, Now: func() time.Time { return start.Add(time.Duration(w.passed.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	if _, err := e.CreatePipeline(engine.Pipeline{Slug: "p", Configuration: "steps: [{command: x}]"}); err != nil {
		t.Fatal(err)
	}
	b, err := e.CreateBuild("p", engine.NewBuild{})
	if err != nil {
		t.Fatal(err)
	}
	w.engine, w.job = e, b.Jobs[0].ID
	w.store = New(e, []byte("0123456789abcdef"))
	server := httptest.NewServer(w.store)
	t.Cleanup(server.Close)
	w.url = server.URL
	w.store.SetBase(server.URL)
	return w
}

func (w *rig) announce(t *testing.T, a engine.NewArtifact) string {
	t.Helper()
	got, err := w.engine.AddArtifacts(w.job, []engine.NewArtifact{a})
	if err != nil {
		t.Fatal(err)
	}
	return got[0].ID
}

func (w *rig) finish(t *testing.T, id string) {
	t.Helper()
	if err := w.engine.SetArtifactState(w.job, id, engine.ArtifactFinished); err != nil {
		t.Fatal(err)
	}
}

func (w *rig) noLeftovers(t *testing.T) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(w.dir, "artifacts", ".upload-*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// form encodes name, value pairs; the field "file" becomes the file.
func form(t *testing.T, fields ...string) (string, io.Reader) {
	t.Helper()
	var body bytes.Buffer
	m := multipart.NewWriter(&body)
	for i := 0; i < len(fields); i += 2 {
		var part io.Writer
		var err error
		if fields[i] == FileField {
			part, err = m.CreateFormFile(FileField, "name")
		} else {
			part, err = m.CreateFormField(fields[i])
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(part, fields[i+1])
	}
	_ = m.Close()
	return m.FormDataContentType(), &body
}

func do(t *testing.T, method, url, contentType string, body io.Reader, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data)
}

func TestFormUploadAndDownload(t *testing.T) {
	w := newRig(t)
	const text = "hällo\x00world"
	sum1, sum256 := sha1.Sum([]byte(text)), sha256.Sum256([]byte(text))
	id := w.announce(t, engine.NewArtifact{
		Path: "out/große datei.json", ContentType: "application/json", Size: int64(len(text)),
		SHA1: hex.EncodeToString(sum1[:]), SHA256: hex.EncodeToString(sum256[:]),
	})
	contentType, body := form(t, "key", "a", "policy", "b", FileField, text)
	if resp, got := do(t, "POST", w.store.At("").UploadForm(id), contentType, body); resp.StatusCode != 204 {
		t.Fatalf("form upload: %s %s", resp.Status, got)
	}
	w.noLeftovers(t)
	if resp, _ := do(t, "GET", w.store.At("").DownloadURL(id), "", nil); resp.StatusCode != 404 {
		t.Errorf("download before the agent said finished: %s, want 404", resp.Status)
	}
	w.finish(t, id)
	resp, got := do(t, "GET", w.store.At("").DownloadURL(id), "", nil)
	if resp.StatusCode != 200 || got != text || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("download: %s %q %q", resp.Status, got, resp.Header.Get("Content-Type"))
	}
	if want := "attachment; filename*=utf-8''gro%C3%9Fe%20datei.json"; resp.Header.Get("Content-Disposition") != want {
		t.Errorf("Content-Disposition %q, want %q", resp.Header.Get("Content-Disposition"), want)
	}
	if resp, got := do(t, "GET", w.store.At("").DownloadURL(id), "", nil, "Range", "bytes=0-0"); resp.StatusCode != 206 || got != "h" {
		t.Errorf("range: %s %q", resp.Status, got)
	}
	contentType, body = form(t, FileField, text)
	if resp, _ := do(t, "POST", w.store.At("").UploadForm(id), contentType, body); resp.StatusCode != 409 {
		t.Errorf("second upload of a finished artifact: %s, want 409", resp.Status)
	}
}

func TestEmptyUpload(t *testing.T) {
	w := newRig(t)
	empty := w.announce(t, engine.NewArtifact{Path: "b"})
	contentType, body := form(t, FileField, "")
	if resp, got := do(t, "POST", w.store.At("").UploadForm(empty), contentType, body); resp.StatusCode != 204 {
		t.Errorf("upload of an empty file: %s %s", resp.Status, got)
	}
	w.noLeftovers(t)
}

func TestUploadRefusals(t *testing.T) {
	w := newRig(t)
	id := w.announce(t, engine.NewArtifact{Path: "a", Size: 3, SHA1: strings.Repeat("0", 40)})
	other := w.announce(t, engine.NewArtifact{Path: "a", Size: 3, SHA256: strings.Repeat("0", 64)})
	post := func(url string, fields ...string) func() (*http.Response, string) {
		return func() (*http.Response, string) {
			contentType, body := form(t, fields...)
			return do(t, "POST", url, contentType, body)
		}
	}
	own := w.store.At("").UploadForm(id)
	signature := own[strings.LastIndexByte(own, '/'):]
	for name, c := range map[string]struct {
		call   func() (*http.Response, string)
		status int
		want   string
	}{
		"too long":           {post(own, FileField, "abcd"), 400, "more than the 3 bytes"},
		"too short":          {post(own, FileField, "ab"), 400, "got 2 bytes, want the 3"},
		"no file":            {post(own, "key", "x"), 400, `no field \"file\"`},
		"wrong hash":         {post(own, FileField, "abc"), 400, "got SHA-1 a9993e"},
		"wrong sha256":       {post(w.store.At("").UploadForm(other), FileField, "abc"), 400, "SHA-256"},
		"body too long":      {post(w.store.At("").UploadForm(other), FileField, "abcd"), 400, "more than the 3 bytes"},
		"body too short":     {post(w.store.At("").UploadForm(other), FileField, "a"), 400, "got 1 bytes"},
		"huge field":         {post(own, "key", strings.Repeat("x", maxField+1), FileField, "abc"), 400, "at most 65536"},
		"signature of other": {post(w.url+"/upload/"+other+signature, FileField, "abc"), 403, "signature"},
		"unknown artifact":   {post(w.store.At("").UploadForm("nope"), FileField, "abc"), 404, "No artifact"},
		"unknown path":       {post(w.url+"/elsewhere", FileField, "abc"), 404, ""},
	} {
		resp, got := c.call()
		if resp.StatusCode != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s %s; want %d %q", name, resp.Status, got, c.status, c.want)
		}
	}
	for _, artifact := range []string{id, other} {
		if _, err := os.Stat(w.engine.ArtifactFile(artifact)); err == nil {
			t.Errorf("a refused upload was kept")
		}
	}
	w.noLeftovers(t)
}

func TestFileMustBeLast(t *testing.T) {
	w := newRig(t)
	id := w.announce(t, engine.NewArtifact{Path: "a", Size: 3})
	contentType, body := form(t, FileField, "abc", "key", "x")
	if resp, got := do(t, "POST", w.store.At("").UploadForm(id), contentType, body); resp.StatusCode != 400 || !strings.Contains(got, "must be the last") {
		t.Errorf("got %s %s", resp.Status, got)
	}
	if resp, got := do(t, "POST", w.store.At("").UploadForm(id), "text/plain", strings.NewReader("abc")); resp.StatusCode != 400 {
		t.Errorf("no form: %s %s", resp.Status, got)
	}
	w.noLeftovers(t)
}

func TestLinksExpireAndCannotBeForged(t *testing.T) {
	w := newRig(t)
	id := w.announce(t, engine.NewArtifact{Path: "a", Size: 1})
	contentType, body := form(t, FileField, "x")
	do(t, "POST", w.store.At("").UploadForm(id), contentType, body)
	w.finish(t, id)
	link := w.store.At("").DownloadURL(id)
	w.passed.Add(int64(LinkLife - 2*time.Second))
	if resp, _ := do(t, "GET", link, "", nil); resp.StatusCode != 200 {
		t.Errorf("before its end: %s", resp.Status)
	}
	w.passed.Add(int64(2 * time.Second))
	if resp, got := do(t, "GET", link, "", nil); resp.StatusCode != 403 || !strings.Contains(got, "expired") {
		t.Errorf("after its end: %s %s", resp.Status, got)
	}
	later := strings.Replace(w.store.At("").DownloadURL(id), "expires=1", "expires=2", 1)
	if resp, _ := do(t, "GET", later, "", nil); resp.StatusCode != 403 {
		t.Errorf("with another expiry: %s", resp.Status)
	}
	if resp, _ := do(t, "GET", w.url+"/artifacts/"+id, "", nil); resp.StatusCode != 403 {
		t.Errorf("without a signature: %s", resp.Status)
	}
}

func TestTokensAreRefusedAndRemembered(t *testing.T) {
	w := newRig(t)
	id := w.announce(t, engine.NewArtifact{Path: "a", Size: 1})
	for _, c := range [][2]string{{"POST", w.store.At("").UploadForm(id)}, {"GET", w.store.At("").DownloadURL(id)}, {"GET", w.url + "/"}} {
		if resp, got := do(t, c[0], c[1], "", nil, "Authorization", "Bearer x"); resp.StatusCode != 400 || !strings.Contains(got, "Authorization") {
			t.Errorf("%s: %s %s", c[0], resp.Status, got)
		}
	}
	if w.store.Leaks() != 3 {
		t.Errorf("Leaks() = %d, want 3", w.store.Leaks())
	}
}

// Links name the host that their caller reached.
func TestLinksAt(t *testing.T) {
	s := newRig(t).store
	s.SetBase("http://localhost:8901")
	for host, want := range map[string]string{
		"127.0.0.1:8900": "http://localhost:8901/", "localhost": "http://localhost:8901/", "[::1]:8900": "http://localhost:8901/", "": "http://localhost:8901/",
		"10.0.2.2:8900": "http://10.0.2.2:8901/", "host.internal": "http://host.internal:8901/", "[fd00::1]:8900": "http://[fd00::1]:8901/",
	} {
		l := s.At(host)
		for _, got := range []string{l.UploadForm("a"), l.DownloadURL("a")} {
			if !strings.HasPrefix(got, want) {
				t.Errorf("At(%q) makes %s, want %s…", host, got, want)
			}
		}
	}
}

package proxy

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/dockertest"
)

// BenchmarkProxy measures what the proxy adds to one container's create, start and
// wait, on an engine that does nothing. Budget: 10 ms.
func BenchmarkProxy(b *testing.B) {
	r := newRig(b)
	r.instant = true
	direct := &http.Client{Transport: r.engine.Transport}
	var there, through time.Duration
	for b.Loop() {
		start := time.Now()
		life(b, direct, "http://docker")
		between := time.Now()
		life(b, http.DefaultClient, r.server.URL)
		there, through = there+between.Sub(start), through+time.Since(between)
	}
	b.ReportMetric(float64((through-there).Microseconds())/1000/float64(b.N), "added-ms/op")
}

// life is what docker's client asks for one container.
func life(b *testing.B, client *http.Client, url string) {
	ask := func(path, body string) string {
		resp, err := client.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 300 {
			b.Fatalf("%s: %s, %v: %s", path, resp.Status, err, text)
		}
		return string(text)
	}
	_, id, _ := strings.Cut(ask("/containers/create", `{"Image":"runner:1"}`), `"Id":"`)
	id, _, _ = strings.Cut(id, `"`)
	ask("/containers/"+id+"/start", "")
	ask("/containers/"+id+"/wait", "")
}

// BenchmarkProxyDocker measures docker run through the proxy and without it, on a
// real engine. The difference is smaller than what one run differs from the next.
func BenchmarkProxyDocker(b *testing.B) {
	e := dockertest.Start(b, os.Getenv(dockertest.Variable))
	e.Import("probe:1", dockertest.Program(b, "probe", probe))
	r := newSlotRig(b, e, "gpu0", "probe:1")
	var there, through time.Duration
	for b.Loop() {
		start := time.Now()
		e.Run("run", "--rm", "--network", "none", "probe:1", "/probe")
		between := time.Now()
		if status, said := r.docker("run", "--rm", "--network", "none", "probe:1", "/probe"); status != 0 {
			b.Fatal(said)
		}
		there, through = there+between.Sub(start), through+time.Since(between)
	}
	b.ReportMetric(float64(there.Milliseconds())/float64(b.N), "direct-ms/op")
	b.ReportMetric(float64(through.Milliseconds())/float64(b.N), "proxied-ms/op")
}

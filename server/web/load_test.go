package web

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store"
)

// Variables that make the test's program a crowd of browsers: the address of the
// pages and the number of pages.
const (
	varCrowd = "KBGEN_TEST_CROWD"
	varPages = "KBGEN_TEST_PAGES"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(varCrowd); address != "" {
		n, _ := strconv.Atoi(os.Getenv(varPages)) // set below
		follow(address, n)
		return
	}
	os.Exit(m.Run())
}

// follow keeps so many pages open as live.js does, until standard input ends, and
// prints how many events, loads and answers 304 there were.
func follow(address string, n int) {
	var events, loads, same, failed, bytes atomic.Int64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n, IdleConnTimeout: time.Minute}}
	for range n {
		go func() {
			c, err := net.Dial("tcp", address)
			if err != nil {
				failed.Add(1)
				return
			}
			fmt.Fprint(c, "GET /events/board/crowd HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
			var tag string
			var due atomic.Bool
			load := func() {
				due.Store(false)
				in, _ := http.NewRequest("GET", "http://"+address+"/b/crowd/H100", nil) // a fixed address
				in.Header.Set("Accept-Encoding", "gzip, br")
				if tag != "" {
					in.Header.Set("If-None-Match", tag)
				}
				out, err := client.Do(in)
				if err != nil || out.StatusCode != 200 && out.StatusCode != 304 {
					failed.Add(1)
					return
				}
				read, _ := io.Copy(io.Discard, out.Body) // as it came: browsers unpack it
				out.Body.Close()
				bytes.Add(read)
				tag = out.Header.Get("ETag")
				loads.Add(1)
				if out.StatusCode == 304 {
					same.Add(1)
				}
			}
			load()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if lines.Text() != "event: change" {
					continue
				}
				events.Add(1)
				if !due.Swap(true) {
					time.AfterFunc(rand.N(300*time.Millisecond), load)
				}
			}
		}()
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(events.Load(), loads.Load(), same.Load(), failed.Load(), bytes.Load())
	}
}

// rusage is the processor time that this process has used.
func rusage(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Many pages on one board with 2,000 users, and a submission a second: what a page
// costs, beside the same submissions with no page open.
func TestSlowOpenPages(t *testing.T) {
	testenv.NeedSlow(t)
	pages := 300
	if n, err := strconv.Atoi(os.Getenv(varPages)); err == nil {
		pages = n
	}
	const span = 20 * time.Second
	w := crowded(t, 2_000)
	submit := func() (busy time.Duration) {
		begun := rusage(t)
		end := time.Now().Add(span)
		for i := 0; time.Now().Before(end); i++ {
			next := time.Now().Add(time.Second)
			w.accept(store.Submission{Board: "crowd", GPU: "H100", UserID: fmt.Sprint(1000 + i), UserName: "somebody"})
			w.evaluate(func(p store.PlannedRun) *schema.Result {
				r := result("H100", 4000-float64(i))
				r.Measurements = nil
				return r
			})
			time.Sleep(time.Until(next))
		}
		return rusage(t) - begun
	}
	alone := submit()
	crowd := exec.Command(os.Args[0])
	crowd.Env = append(os.Environ(), varCrowd+"="+strings.TrimPrefix(w.server.URL, "http://"), fmt.Sprintf("%s=%d", varPages, pages))
	crowd.Stderr = os.Stderr
	in, err := crowd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := crowd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := crowd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	stop := func() { once.Do(func() { in.Close(); crowd.Wait() }) }
	defer stop()
	lines := bufio.NewReader(out)
	ask := func() (events, loads, same, failed, bytes int64) {
		fmt.Fprintln(in)
		line, err := lines.ReadString('\n')
		if err == nil {
			_, err = fmt.Sscan(line, &events, &loads, &same, &failed, &bytes)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, loads, _, failed, _ := ask(); loads < int64(pages); _, loads, _, failed, _ = ask() {
		if failed > 0 {
			t.Fatalf("%d pages could not be opened", failed)
		}
		time.Sleep(100 * time.Millisecond)
	}
	e0, l0, s0, _, b0 := ask()
	with := submit()
	runtime.ReadMemStats(&after)
	e1, l1, s1, failed, b1 := ask()
	cost := (with - alone).Seconds() / span.Seconds()
	t.Logf("%d pages: %.1f %% of a core beside %.1f %% for the submissions, %.0f µs a second and %.1f KB a page; in %v %d events, %d loads, %d of them 304, %.1f MB; %d failed",
		pages, 100*cost, 100*alone.Seconds()/span.Seconds(), 1e6*cost/float64(pages), float64(after.Sys-before.Sys)/1e3/float64(pages), span, e1-e0, l1-l0, s1-s0, float64(b1-b0)/1e6, failed)
	if failed > 0 || l1-l0 < int64(pages)*5 {
		t.Errorf("%d pages failed, %d were loaded", failed, l1-l0)
	}
}

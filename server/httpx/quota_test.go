package httpx

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestQuota(t *testing.T) {
	at := func(address string) context.Context {
		return context.WithValue(t.Context(), clientKey, netip.MustParseAddr(address))
	}
	q := &Quota{Each: 2, All: 25}
	take := func(address, caller string, want error) func() {
		t.Helper()
		release, err := q.Take(at(address), caller)
		if !errors.Is(err, want) {
			t.Fatalf("Take(%s, %q): %v, want %v", address, caller, err, want)
		}
		return release
	}
	first := take("192.0.2.1", "user 7", nil)
	take("192.0.2.2", "user 7", nil)
	take("192.0.2.3", "user 7", ErrClientFull)
	first()
	first() // counts once
	take("192.0.2.3", "user 7", nil)
	take("192.0.2.3", "user 7", ErrClientFull)
	for range 2 * addressFactor {
		first = take("198.51.100.1", "198.51.100.1", nil)
	}
	take("198.51.100.1", "198.51.100.1", ErrClientFull)
	take("198.51.100.1", "user 8", ErrClientFull)
	for range 3 {
		take("203.0.113.1", "", nil)
	}
	take("203.0.113.2", "", ErrFull)
	first()
	take("203.0.113.2", "", nil)
}

// readAll answers with how many bytes came, or why not all of them.
func readAll(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		Error(w, http.StatusRequestTimeout, err.Error())
		return
	}
	fmt.Fprint(w, len(b))
}

// send begins a request whose body is longer than what it sends.
func send(t *testing.T, s *httptest.Server, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsome", path)
	return c
}

func status(t *testing.T, c net.Conn) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// A body that does not come ends the request, whichever handler reads it, and a
// handler that refuses it unread does not wait for it.
func TestUnsentBodiesEnd(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		Expect(r, MaxBody, 50*time.Millisecond)
		readAll(w, r)
	})
	mux.HandleFunc("/refuse", func(w http.ResponseWriter, _ *http.Request) { Error(w, http.StatusForbidden, "no") })
	s := httptest.NewServer(Wrap(mux, Options{}))
	defer s.Close()
	for path, want := range map[string]int{"/read": 408, "/refuse": 403} {
		begun := time.Now()
		if got := status(t, send(t, s, path)); got != want || time.Since(begun) > MaxTime/2 {
			t.Errorf("%s: %d after %v, want %d", path, got, time.Since(begun), want)
		}
	}
}

// deadlined reports what deadlines a handler has.
type deadlined struct {
	*httptest.ResponseRecorder
	read, write time.Time
}

func (d *deadlined) SetReadDeadline(at time.Time) error  { d.read = at; return nil }
func (d *deadlined) SetWriteDeadline(at time.Time) error { d.write = at; return nil }

func TestEveryRequestHasLimits(t *testing.T) {
	d := &deadlined{ResponseRecorder: httptest.NewRecorder()}
	Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for what, at := range map[string]time.Time{"read": d.read, "write": d.write} {
			if left := time.Until(at); left <= 0 || left > MaxTime+writeTime {
				t.Errorf("the %s deadline is in %v", what, left)
			}
		}
		if _, err := io.ReadAll(r.Body); err == nil {
			t.Error("a body without limit")
		}
		NewStream(w, r)
		if !d.read.IsZero() {
			t.Error("a stream has a read deadline, at which it would end")
		}
	}), Options{}).ServeHTTP(d, httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", MaxBody+1))))
}

// The context of a request ends with its time, and says why.
func TestRequestsTimeOut(t *testing.T) {
	serve(func(_ http.ResponseWriter, r *http.Request) {
		Expect(r, MaxBody, time.Millisecond)
		<-r.Context().Done()
		if !TimedOut(r.Context()) {
			t.Error("the cause is ", context.Cause(r.Context()))
		}
	}, Options{}, nil)
}

func TestBodiesAreCounted(t *testing.T) {
	begun := make(chan bool, 100)
	s := httptest.NewServer(Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- true
		readAll(w, r)
	}), Options{}))
	defer s.Close()
	var slow []net.Conn
	for range maxBodies * addressFactor {
		slow = append(slow, send(t, s, "/"))
		<-begun
	}
	if got := status(t, send(t, s, "/")); got != http.StatusTooManyRequests {
		t.Errorf("one more: %d, want 429", got)
	}
	if resp, err := http.Get(s.URL); err != nil || resp.StatusCode != 200 {
		t.Errorf("a request without a body: %v, %v, want 200", resp, err)
	}
	fmt.Fprint(slow[0], strings.Repeat("x", 96))
	if got := status(t, slow[0]); got != 200 {
		t.Errorf("a body that came in the end: %d, want 200", got)
	}
	if resp, err := http.Post(s.URL, "text/plain", strings.NewReader("x")); err != nil || resp.StatusCode != 200 {
		t.Errorf("a body after that: %v, %v, want 200", resp, err)
	}
	for _, c := range slow {
		c.Close()
	}
}

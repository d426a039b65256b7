package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/popcorn"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

// What is submitted to a server with a hook waits for it. A server without one leaves
// what waits alone and says so.
func TestAServerAsksItsHook(t *testing.T) {
	s := servertest.SQLite(t)
	servertest.Save(t, s, servertest.Board("sort"))
	cli, err := s.NewCLIID(t.Context(), "7", "ann")
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case a := <-answer:
			fmt.Fprint(w, a)
		default: // of the result
		}
	}))
	defer receiver.Close()
	client, err := launcher.New(launcher.Options{BaseURL: receiver.URL, Token: "bkua_secret", Org: "gpu-mode", Pipeline: "kernelbot"})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Store: s, Launcher: client, PublicURL: "http://kb.test", HookURL: receiver.URL, HookSecret: "hush"}
	srv, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- srv.Serve(ctx, []net.Listener{l}, nil, nil) }()
	answer <- `{"decision": "reject", "reason": "no sockets"}`
	ann := &popcorn.Client{URL: "http://" + l.Addr().String(), CLIID: cli}
	out, err := ann.Submit(ctx, "sort", "H100", "test", "a.py", []byte("x = 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		p, err := s.Poll(ctx, out.ID)
		if err != nil || time.Now().After(until) {
			t.Fatalf("the submission is %+v, %v; want it rejected", p, err)
		}
		if p.Done {
			if p.Job.Error != "rejected by the organizers: no sockets" {
				t.Errorf("the error is %q", p.Job.Error)
			}
			break
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}

	waiting, err := s.Accept(t.Context(), store.Submission{Board: "sort", GPU: "H100", Mode: "test", UserID: "7", FileName: "a.py", Code: []byte("y = 1\n"), Time: time.Now(), Check: true})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	o.HookURL, o.HookSecret, o.Log = "", "", slog.New(slog.NewTextHandler(&log, nil))
	if _, err := New(t.Context(), o); err != nil || !strings.Contains(log.String(), fmt.Sprintf("kbserve submission accept --all lets them run\" first=%d", waiting.ID)) {
		t.Errorf("New without a hook: %v, and the log is\n%s", err, log.String())
	}
	if p, err := s.Poll(t.Context(), waiting.ID); err != nil || len(p.Open) != 1 || p.Open[0].State != store.StateHeld {
		t.Errorf("what waits for a hook is %+v, %v", p, err)
	}
}

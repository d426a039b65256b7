package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// A front answers on listeners until it is closed.
type front struct {
	log       *slog.Logger
	listeners []net.Listener
	servers   []*http.Server
	accepting sync.WaitGroup
	drain     drain
	failed    chan error // 1 deep: why one of them does not answer any more
}

func newFront(log *slog.Logger) *front {
	return &front{log: log, drain: drain{busy: map[net.Conn]time.Time{}}, failed: make(chan error, 1)}
}

// answer begins to answer on a listener.
func (f *front) answer(l net.Listener, h http.Handler) {
	hs := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog:  slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
		ConnState: f.drain.state,
	}
	f.listeners, f.servers = append(f.listeners, l), append(f.servers, hs)
	f.accepting.Go(func() {
		err := hs.Serve(l)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		select {
		case f.failed <- fmt.Errorf("serving on %s: %w", l.Addr(), err):
		default:
		}
	})
}

// close stops taking connections and returns when everything that has begun is
// answered; what is not when ctx ends is broken off.
func (f *front) close(ctx context.Context) {
	for _, l := range f.listeners {
		l.Close()
	}
	f.accepting.Wait()
	for _, hs := range f.servers {
		hs.SetKeepAlivesEnabled(false)
	}
	f.drain.wait(ctx)
	for _, hs := range f.servers {
		if hs.Shutdown(ctx) != nil {
			hs.Close()
		}
	}
}

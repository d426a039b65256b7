// Package listener opens a server's sockets so that they outlive the process.
package listener

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/cloudflare/tableflip"
	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/google/renameio/v2"
)

// Sockets are where a server answers. Its clients give up at the first connection
// that is refused, so a listener outlives the process: systemd keeps it, or it is
// handed to the next process, which SIGHUP starts from the program's file.
type Sockets struct {
	Pages, Metrics []net.Listener
	upgrader       *tableflip.Upgrader // nil with systemd's sockets
}

// upgradeTime is how long a new process has to get ready.
const upgradeTime = time.Minute

// Listen takes systemd's sockets, or opens the addresses. A socket that systemd
// calls "metrics" is for metrics.
func Listen(addresses []string, metrics string) (*Sockets, error) {
	l := &Sockets{}
	named, err := activation.ListenersWithNames()
	if err != nil {
		return nil, fmt.Errorf("systemd's sockets: %w", err)
	}
	for name, sockets := range named {
		if name == "metrics" {
			l.Metrics = append(l.Metrics, sockets...)
		} else {
			l.Pages = append(l.Pages, sockets...)
		}
	}
	open := net.Listen
	if len(l.Pages) == 0 {
		if l.upgrader, err = tableflip.New(tableflip.Options{UpgradeTimeout: upgradeTime}); err != nil {
			return nil, fmt.Errorf("taking listeners over: %w", err)
		}
		open = l.upgrader.Listen
		for _, address := range addresses {
			socket, err := open("tcp", address)
			if err != nil {
				l.Close()
				return nil, fmt.Errorf("--listen: %w", err)
			}
			l.Pages = append(l.Pages, socket)
		}
	}
	if metrics != "" && len(l.Metrics) == 0 {
		socket, err := open("tcp", metrics)
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("--metrics: %w", err)
		}
		l.Metrics = append(l.Metrics, socket)
	}
	if len(l.Pages) == 0 {
		l.Close()
		return nil, fmt.Errorf("no address to listen on")
	}
	return l, nil
}

// URL is how this machine reaches the server.
func (l *Sockets) URL() string {
	address, ok := l.Pages[0].Addr().(*net.TCPAddr)
	if !ok {
		return "http://localhost"
	}
	if address.IP.IsUnspecified() {
		return fmt.Sprintf("http://localhost:%d", address.Port)
	}
	return "http://" + address.String()
}

// Ready tells the process before this one, and systemd, that this one answers. pidFile,
// if not "", holds its id from here on.
func (l *Sockets) Ready(pidFile string, log *slog.Logger) error {
	if pidFile != "" {
		if err := renameio.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return fmt.Errorf("--pid-file: %w", err)
		}
	}
	if l.upgrader != nil {
		if err := l.upgrader.Ready(); err != nil { // it was killed: nobody else answers
			log.Warn("the process before this one does not hear that this one answers", "error", err)
		}
	}
	daemon.SdNotify(false, daemon.SdNotifyReady) // without systemd it does nothing
	return nil
}

// Hangups takes SIGHUPs from here on, which would end the process otherwise.
func Hangups() chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

// Context ends when parent does, or when another process has taken over, which SIGHUP
// asks for. From then on, a listener that is closed refuses connections: before, the
// upgrader's copy of the socket would still take them, and nothing would answer.
func (l *Sockets) Context(parent context.Context, hangup chan os.Signal, log *slog.Logger) (context.Context, context.CancelFunc) {
	if l.upgrader == nil {
		return context.WithCancel(parent)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(parent))
	go func() {
		defer signal.Stop(hangup)
		defer stop()
		defer context.AfterFunc(parent, l.upgrader.Stop)()
		for {
			select {
			case <-ctx.Done():
				return
			case <-l.upgrader.Exit(): // its copies are closed
				if parent.Err() == nil {
					log.Info("another process has taken over")
				}
				return
			case <-hangup:
				log.Info("starting the next process")
				if err := handOver(parent, l.upgrader); err != nil && parent.Err() == nil {
					log.Error("the next process did not get ready; this one goes on", "error", err)
				}
			}
		}
	}()
	return ctx, stop
}

// handOver starts the next process and returns when that one answers. It waits for
// the process before this one to end, which took over from a moment ago.
func handOver(ctx context.Context, u *tableflip.Upgrader) error {
	if err := u.WaitForParent(ctx); err != nil {
		return err
	}
	for {
		err := u.Upgrade()
		if err == nil || !tooEarly(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// tooEarly tells that an upgrade was refused, and no process started, since the
// upgrader's own loop has not yet seen what its caller has: that this process is
// ready, or that its parent has ended. Both come true by themselves. tableflip
// v1.2.3 gives these errors no names.
func tooEarly(err error) bool {
	text := err.Error()
	return text == "process is not ready yet" || text == "parent hasn't exited"
}

// Close closes the sockets.
func (l *Sockets) Close() {
	if l.upgrader != nil {
		l.upgrader.Stop()
	}
	for _, socket := range append(l.Pages, l.Metrics...) {
		socket.Close()
	}
}

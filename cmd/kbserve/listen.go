package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cloudflare/tableflip"
	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// listening is where a server answers. Its clients give up at the first connection
// that is refused, so a listener outlives the process: systemd keeps it, or it is
// handed to the next process, which SIGHUP starts from the program's file.
type listening struct {
	pages, metrics []net.Listener
	upgrader       *tableflip.Upgrader // nil with systemd's sockets
}

// upgradeTime is how long a new process has to get ready.
const upgradeTime = time.Minute

// listen takes systemd's sockets, or opens the addresses. A socket that systemd
// calls "metrics" is for metrics. pidFile, if not "", holds the id of the process that
// answers.
func listen(addresses []string, metrics, pidFile string) (*listening, error) {
	l := &listening{}
	named, err := activation.ListenersWithNames()
	if err != nil {
		return nil, fmt.Errorf("systemd's sockets: %w", err)
	}
	for name, sockets := range named {
		if name == "metrics" {
			l.metrics = append(l.metrics, sockets...)
		} else {
			l.pages = append(l.pages, sockets...)
		}
	}
	open := net.Listen
	if len(l.pages) == 0 {
		if l.upgrader, err = tableflip.New(tableflip.Options{UpgradeTimeout: upgradeTime, PIDFile: pidFile}); err != nil {
			return nil, fmt.Errorf("taking listeners over: %w", err)
		}
		open = l.upgrader.Listen
		for _, address := range addresses {
			socket, err := open("tcp", address)
			if err != nil {
				l.close()
				return nil, fmt.Errorf("--listen: %w", err)
			}
			l.pages = append(l.pages, socket)
		}
	}
	if metrics != "" && len(l.metrics) == 0 {
		socket, err := open("tcp", metrics)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("--metrics: %w", err)
		}
		l.metrics = append(l.metrics, socket)
	}
	if len(l.pages) == 0 {
		l.close()
		return nil, fmt.Errorf("no address to listen on")
	}
	return l, nil
}

// url is how this machine reaches the server.
func (l *listening) url() string {
	address, ok := l.pages[0].Addr().(*net.TCPAddr)
	if !ok {
		return "http://localhost"
	}
	if address.IP.IsUnspecified() {
		return fmt.Sprintf("http://localhost:%d", address.Port)
	}
	return "http://" + address.String()
}

// ready tells systemd, and the process before this one, that this one answers.
func (l *listening) ready() {
	if l.upgrader != nil {
		l.upgrader.Ready()
	}
	daemon.SdNotify(false, daemon.SdNotifyReady) // without systemd it does nothing
}

// hangups takes SIGHUPs from here on, which would end the process otherwise.
func hangups() chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

// context ends when ctx does, or when another process has taken over, which SIGHUP
// asks for.
func (l *listening) context(ctx context.Context, hangup chan os.Signal, log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(ctx)
	if l.upgrader == nil {
		return ctx, stop
	}
	go func() {
		defer signal.Stop(hangup)
		defer stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-l.upgrader.Exit():
				log.Info("another process has taken over")
				return
			case <-hangup:
				log.Info("starting the next process")
				err := l.upgrader.WaitForParent(ctx) // one that took over a moment ago
				if err == nil {
					err = l.upgrader.Upgrade()
				}
				if err != nil && ctx.Err() == nil {
					log.Error("the next process did not get ready; this one goes on", "error", err)
				}
			}
		}
	}()
	return ctx, stop
}

func (l *listening) close() {
	if l.upgrader != nil {
		l.upgrader.Stop()
	}
	for _, socket := range append(l.pages, l.metrics...) {
		socket.Close()
	}
}

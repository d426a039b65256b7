package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/popcorn"
	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/localtest"
	"github.com/gpu-mode/kbgen/local/notice"
)

// A submission goes by popcorn-cli's protocol through kbserve, Buildkite's stand-in,
// a real agent and kbrun, and ranks; one that crashes does not. Events tell of the ends.
func TestServeFromSubmissionToRank(t *testing.T) { serveFromSubmissionToRank(t, "SQLite") }

func TestSlowServeFromSubmissionToRank(t *testing.T) {
	testenv.NeedSlow(t)
	serveFromSubmissionToRank(t, "PostgreSQL")
}

func serveFromSubmissionToRank(t *testing.T, databases ...string) {
	t.Parallel()
	address := freeAddress(t)
	r := newRig(t, func(o *local.Options) {
		o.Webhook = &notice.Options{URL: "http://" + address + "/webhooks/buildkite", Token: webhookToken}
	})
	for _, kind := range databases {
		t.Run(kind, func(t *testing.T) {
			b := newBackendRig(t, r.Server, kind)
			b.user("1001")
			b.user("1002")
			b.do("board", "create", "sort", tiny, "--deadline", "2100-01-01", "--gpu", "CPU_BK")
			i := b.serve(address, "--rate", "0")
			defer i.stop()
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			run := func(user, mode, submission string) (*popcorn.Submission, error) {
				code, err := os.ReadFile(filepath.Join(tiny, submission))
				if err != nil {
					t.Fatal(err)
				}
				c := popcorn.Client{URL: "http://" + address, CLIID: b.users[user], Poll: 200 * time.Millisecond}
				return c.Run(ctx, "sort", "CPU_BK", mode, submission, code)
			}
			if s, err := run("1001", "leaderboard", "right.py"); err != nil || len(s.Runs) != 6 {
				t.Errorf("a right submission: %+v, %v; want six runs", s, err)
			}
			var ended *popcorn.Ended
			if _, err := run("1002", "leaderboard", "crash.py"); !errors.As(err, &ended) {
				t.Errorf("a submission that crashes: %v, want that it ended without a rank", err)
			}
			if s, err := run("1002", "test", "crash.py"); err != nil || len(s.Runs) != 1 || s.Runs[0].Passed {
				t.Errorf("a submission that crashes in mode test: %+v, %v; want one run that failed", s, err)
			}
			out := b.do("board", "show", "sort")
			if !strings.Contains(out, "1 ranked") || !strings.Contains(out, "user 1001") || strings.Contains(out, "user 1002") {
				t.Errorf("the ranking is\n%s", out)
			}
			b.diagnose(ctx)
			i.stop()
			if log := i.logged(); !strings.Contains(log, "stopped") {
				t.Errorf("the last line does not say that it stopped: %s", i.tail(3))
			}
			for _, secret := range append([]string{webhookToken, adminToken, r.APIToken(), "custom_kernel"}, b.users["1001"], b.users["1002"]) {
				if strings.Contains(i.logged(), secret) {
					t.Errorf("the log holds a secret: %.4s…", secret)
				}
			}
		})
	}
	if r.Webhooks().Sent == 0 {
		t.Error("no event was taken")
	}
}

// diagnose asks doctor: nothing is wrong, and then two things are.
func (b *backendRig) diagnose(ctx context.Context) {
	b.t.Helper()
	doctor := func(status int, words ...string) {
		b.t.Helper()
		command(b.t, ctx, b.env(), "", filepath.Join(bin, "kbserve"), "doctor").want(b.t, status, words...)
	}
	doctor(0, "nothing is stuck")
	if err := b.store().SawEvent(ctx, time.Now().Add(-2*time.Hour)); err != nil {
		b.t.Error(err)
	}
	b.do("board", "create", "lonely", tiny, "--deadline", "2100-01-01", "--gpu", "L40S_BK")
	doctor(1, "silence: the last of Buildkite's events came at", "machines: board lonely: no agent serves L40S_BK (queue test, paused agents: 0)")
}

// reasons are why requests were turned away.
type reasons struct {
	mu  sync.Mutex
	all []string
}

func (r *reasons) add(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, why)
}

// ask sends requests one after the other, each on a connection of its own as a client
// that was just started does, until stop. It keeps why one was refused.
func ask(address string, stop <-chan struct{}, asked *atomic.Int64, refused *reasons) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	for {
		select {
		case <-stop:
			return
		default:
		}
		asked.Add(1)
		answer, err := client.Get("http://" + address + "/leaderboards")
		if err != nil {
			refused.add(err.Error())
			continue
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			refused.add(answer.Status)
		}
	}
}

// enough is how many requests make a test of restarts.
const enough = 50

// hammered runs do, again and again, while clients ask, until enough have, and fails
// if one was turned away.
func hammered(t *testing.T, address string, do func()) {
	t.Helper()
	var asked atomic.Int64
	var refused reasons
	stop := make(chan struct{})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { ask(address, stop, &asked, &refused) })
	}
	for done := false; !done; done = asked.Load() >= enough || t.Context().Err() != nil {
		do()
	}
	close(stop)
	group.Wait()
	t.Logf("%d requests, %d turned away", asked.Load(), len(refused.all))
	if len(refused.all) > 0 {
		t.Errorf("%d of %d requests were turned away, such as: %s", len(refused.all), asked.Load(), refused.all[0])
	}
}

// idleStandIn is one that nobody submits to.
func idleStandIn(t *testing.T) *local.Server {
	t.Helper()
	return localtest.Start(t, local.Options{Dir: t.TempDir()})
}

// SIGHUP starts the next process, which takes the listener over: nobody is turned
// away.
func TestHandOver(t *testing.T) {
	t.Parallel()
	b := newBackendRig(t, idleStandIn(t), "SQLite")
	pidFile := filepath.Join(t.TempDir(), "pid")
	address := freeAddress(t)
	first := b.serve(address, "--rate", "0", "--pid-file", pidFile)
	pid := func() int {
		text, err := os.ReadFile(pidFile)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	seen := map[int]bool{first.cmd.Process.Pid: true}
	defer func() {
		if last := pid(); last != first.cmd.Process.Pid {
			syscall.Kill(last, syscall.SIGTERM)
		}
	}()
	hammered(t, address, func() {
		for range 3 {
			old := pid()
			if err := syscall.Kill(old, syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(patience); pid() == old; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("no other process took over")
				}
			}
			seen[pid()] = true
		}
	})
	if len(seen) < 4 {
		t.Errorf("%d processes answered, want at least 4", len(seen))
	}
	<-first.ended
}

// With a socket that somebody else keeps, as systemd does, a restart turns nobody
// away: who comes meanwhile waits.
func TestRestartBehindAKeptSocket(t *testing.T) {
	t.Parallel()
	b := newBackendRig(t, idleStandIn(t), "SQLite")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	address := l.Addr().String()
	start := func() (stop func() error) {
		// systemd says who the sockets are for by the process's id.
		cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" serve --rate 0`, filepath.Join(bin, "kbserve"))
		cmd.Env, cmd.ExtraFiles = b.env(), []*os.File{socket}
		var log strings.Builder
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func() error {
			cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				return fmt.Errorf("%w\n%s", err, log.String())
			}
			return nil
		}
	}
	stop := start()
	hammered(t, address, func() {
		for range 3 {
			answer, err := http.Get("http://" + address + "/ready")
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if err := stop(); err != nil {
				t.Error(err)
			}
			stop = start()
		}
	})
	l.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

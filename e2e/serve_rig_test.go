package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/pgtest"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/store"
)

// postgres is the PostgreSQL of these tests.
var postgres = pgtest.Shared{Durable: true}

// databaseURL makes an empty database of a kind.
func databaseURL(t *testing.T, kind string) string {
	t.Helper()
	if kind == "SQLite" {
		return "sqlite:" + filepath.Join(t.TempDir(), "kbserve.db")
	}
	return postgres.URL(t)
}

// given are the ports that freePort has given away.
var given sync.Map

// freePort is a port that nothing listens at now. It lies below those that the kernel
// gives to outgoing connections, which could take it before the test's program does.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		if _, taken := given.LoadOrStore(port, true); !taken {
			return port
		}
	}
	t.Fatal("no free port from 20000 to 31999")
	return 0
}

func freeAddress(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", freePort(t)) }

const (
	webhookToken = "the webhook's token"
	adminToken   = "the admin's token"
)

// A backendRig is a database, and instances of kbserve on it that make builds on a
// stand-in.
type backendRig struct {
	t        *testing.T
	standIn  *local.Server
	database string
	users    map[string]string // CLI ids, by user id
	dir      string
}

func newBackendRig(t *testing.T, standIn *local.Server, kind string) *backendRig {
	b := &backendRig{t: t, standIn: standIn, database: databaseURL(t, kind), users: map[string]string{}, dir: t.TempDir()}
	b.do("db", "migrate")
	return b
}

// env is what kbserve is started with.
func (b *backendRig) env() []string {
	return append(os.Environ(), "KBSERVE_DATABASE="+b.database, "KBSERVE_API_URL="+b.standIn.URL()+"/", "BUILDKITE_API_TOKEN="+b.standIn.APIToken(),
		"KBSERVE_WEBHOOK_TOKEN="+webhookToken, "KBSERVE_ADMIN_TOKEN="+adminToken)
}

// do runs a command of kbserve and returns what it printed.
func (b *backendRig) do(args ...string) string {
	b.t.Helper()
	out := command(b.t, b.t.Context(), b.env(), "", filepath.Join(bin, "kbserve"), args...)
	if out.status != 0 {
		b.t.Fatalf("kbserve %s: exit status %d\n%s%s", strings.Join(args, " "), out.status, out.stdout, out.stderr)
	}
	return out.stdout
}

// user makes a user and keeps their CLI id.
func (b *backendRig) user(id string) {
	b.t.Helper()
	b.users[id] = strings.TrimSpace(b.do("user", "create", id, "--name", "user "+id))
}

// An instance is one kbserve.
type instance struct {
	rig     *backendRig
	address string
	flags   []string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	log   string // file
}

// serve starts an instance and waits until it is ready.
func (b *backendRig) serve(address string, flags ...string) *instance {
	b.t.Helper()
	i := &instance{rig: b, address: address, flags: flags}
	i.start()
	b.t.Cleanup(func() {
		i.stop()
		if b.t.Failed() {
			b.t.Logf("the last log of %s:\n%s", address, i.tail(60))
		}
	})
	return i
}

func (i *instance) start() {
	i.rig.t.Helper()
	i.mu.Lock()
	// A file, not a pipe: the processes that take over hold it open as well.
	log, err := os.CreateTemp(i.rig.dir, "log-")
	if err != nil {
		i.rig.t.Fatal(err)
	}
	defer log.Close()
	i.log = log.Name()
	i.cmd = exec.Command(filepath.Join(bin, "kbserve"), append([]string{"serve", "--listen", i.address}, i.flags...)...)
	i.cmd.Env = i.rig.env()
	i.cmd.Stdout, i.cmd.Stderr = log, log
	i.ended = make(chan struct{})
	err = i.cmd.Start()
	if err == nil {
		go func(cmd *exec.Cmd, ended chan struct{}) {
			cmd.Wait()
			close(ended)
		}(i.cmd, i.ended)
	}
	ended := i.ended
	i.mu.Unlock()
	if err != nil {
		i.rig.t.Fatal(err)
	}
	deadline := time.After(patience)
	for {
		answer, err := http.Get("http://" + i.address + "/ready")
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-ended:
			i.rig.t.Fatalf("kbserve ended before it was ready:\n%s", i.tail(40))
		case <-deadline:
			i.rig.t.Fatalf("kbserve is not ready: %v\n%s", err, i.tail(40))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// signal sends one to the process and waits for its end.
func (i *instance) signal(s os.Signal) {
	i.mu.Lock()
	cmd, ended := i.cmd, i.ended
	i.mu.Unlock()
	cmd.Process.Signal(s) // it may have ended
	<-ended
}

func (i *instance) kill() { i.signal(os.Kill) }
func (i *instance) stop() { i.signal(os.Interrupt) }

// logged is what the process has logged so far.
func (i *instance) logged() string {
	text, err := os.ReadFile(i.log)
	if err != nil {
		i.rig.t.Error(err)
	}
	return string(text)
}

// tail is the end of it, without requests that were answered with 200: thousands
// would hide why a test failed.
func (i *instance) tail(lines int) string {
	all := slices.DeleteFunc(strings.Split(i.logged(), "\n"), func(line string) bool {
		return strings.Contains(line, "msg=request ") && strings.Contains(line, " status=200 ")
	})
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// errUncertain is a submission of which nobody knows whether it was accepted.
var errUncertain = errors.New("no answer")

// submit hands code in as popcorn-cli does, and returns the submission's id.
func (b *backendRig) submit(ctx context.Context, address, user, board, gpu, mode, code string) (id int64, err error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "submission.py")
	if err != nil {
		return 0, err
	}
	io.WriteString(part, code)
	form.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://%s/submission/%s/%s/%s", address, board, gpu, mode), &body)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", form.FormDataContentType())
	request.Header.Set("X-Popcorn-Cli-Id", b.users[user])
	answer, err := http.DefaultClient.Do(request)
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return 0, err
	case err != nil:
		return 0, errUncertain
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, errUncertain
	}
	if answer.StatusCode != http.StatusAccepted {
		return 0, fmt.Errorf("got %s: %s", answer.Status, raw)
	}
	var accepted struct {
		Details struct{ ID int64 }
	}
	if err := json.Unmarshal(raw, &accepted); err != nil || accepted.Details.ID == 0 {
		return 0, fmt.Errorf("got %s, %v", raw, err)
	}
	return accepted.Details.ID, nil
}

// store opens the database beside the instances.
func (b *backendRig) store() *store.Store {
	b.t.Helper()
	s, err := store.Open(b.t.Context(), b.database)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { s.Close() })
	return s
}

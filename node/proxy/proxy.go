// Package proxy stands between one slot's agent and the docker engine. The agent's
// user may use this socket and no other: what it asks for is answered from a list
// of endpoints, and a container it creates is built anew from the few settings
// that a step has a say in. User, devices, cores, memory and the rest are the
// slot's, whatever was asked.
//
// It knows no job: what a step may say in the first place is package gate's.
package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/audit"
	"github.com/gpu-mode/kbgen/node/docker"
)

// endedTime bounds what is done after a container has ended; the next one waits
// for it.
const endedTime = time.Minute

// Options say whose proxy it is.
type Options struct {
	Slot     *node.Slot
	UID, GID int    // of the slot's user; jobs' directories belong to it
	JobUID   int    // containers run as this user, in the group GID
	Engine   string // the unix socket of the engine
	TempDir  string // whose jobs' directories may be mounted; the default is Slot.TempDir()
	Proofs   string // a directory that every container gets to read as schema.ProofDir; "": none

	// Pins are read for each container: an update holds from the next one on.
	Pins func() (*node.Pins, error)
	// Ended is called once for each container that has ended. The next container
	// is created when it has returned. Its error is logged.
	Ended func(ctx context.Context) error
	// Stuck is called when the engine cannot remove what the last job left: the next
	// job would fail like this one.
	Stuck func(ctx context.Context, why error)
	// Audit is called once for each container that was started and has ended.
	Audit func(audit.Record) error
	// Log is told of what was refused, created and ended: one line each, none of a
	// job's values in it.
	Log func(format string, args ...any)
}

// A Proxy answers one slot's agent. It is an http.Handler.
type Proxy struct {
	Options
	engine  *docker.Client
	forward *httputil.ReverseProxy

	creating sync.Mutex // held for one create at a time
	mu       sync.Mutex
	watched  map[string]chan struct{} // by container; closed when Ended has returned
	records  map[string]audit.Record  // by container, of those that were created
}

// New returns the proxy of a slot. It asks the engine nothing yet.
func New(o Options) (*Proxy, error) {
	switch {
	case o.Slot == nil || o.Slot.Name == "":
		return nil, errors.New("proxy: got no slot")
	case o.UID <= 0 || o.GID <= 0 || o.JobUID <= 0:
		return nil, fmt.Errorf("proxy of %s: got users %d and %d, group %d, want others than root's", o.Slot.Name, o.UID, o.JobUID, o.GID)
	case o.Slot.MemoryBytes <= 0 || o.Slot.Pids <= 0 || o.Slot.CPUs == "":
		return nil, fmt.Errorf("proxy of %s: got %d bytes of memory, %d processes, cores %q, want all three limited",
			o.Slot.Name, o.Slot.MemoryBytes, o.Slot.Pids, o.Slot.CPUs)
	case o.Pins == nil:
		return nil, fmt.Errorf("proxy of %s: got no pins", o.Slot.Name)
	}
	o.TempDir = cmp.Or(o.TempDir, o.Slot.TempDir())
	p := &Proxy{Options: o, engine: docker.New(o.Engine), watched: map[string]chan struct{}{}, records: map[string]audit.Record{}}
	p.forward = &httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {}, // pass has made the request
		Transport:     p.engine.Transport,
		FlushInterval: -1, // what a container writes is passed on as it comes
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuse(w, http.StatusBadGateway, "the docker engine does not answer: %v", err)
		},
	}
	return p, nil
}

// refuse answers as the engine does. The docker command prints the message, and so
// it stands in the job's log.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	answer(w, status, map[string]string{"message": "kbnode: " + fmt.Sprintf(format, args...)})
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

// Listen takes the socket that systemd made, or makes one for this user alone.
func Listen(socket string) (net.Listener, error) {
	if socket == "" {
		handed, err := activation.Listeners()
		if err != nil || len(handed) != 1 || handed[0] == nil {
			return nil, node.Usagef("--socket: got none, and %d sockets from systemd, want one", len(handed))
		}
		return handed[0], nil
	}
	mask := syscall.Umask(0o177)
	l, err := net.Listen("unix", socket)
	syscall.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("--socket: %w", err)
	}
	return l, nil
}

// Serve answers until ctx is done. The agent's preflight makes the check after the
// last container, where that is cut off.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, logger *log.Logger) error {
	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: logger}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }() // ends with Close
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	return server.Close() // the agent's unit stops first, and leaves nothing to wait for
}

// Reap removes the containers that a slot's jobs left, and everything in the
// directories of the slot's user below root. The slot's agent must have stopped. The
// engine listens at a unix socket; "" skips the containers. Reap returns the number of
// containers it found.
func Reap(ctx context.Context, s *node.Slot, socket, root string) (n int, err error) {
	if socket != "" {
		if n, err = docker.New(socket).Reap(ctx, s.Label()); err != nil {
			err = fmt.Errorf("slot %s: %w", s.Name, err)
		}
	}
	for _, dir := range s.UserDirs() {
		err = errors.Join(err, empty(filepath.Join(root, dir), func(fs.DirEntry) bool { return true }))
	}
	return n, err
}

// RemoveJobs removes jobs' directories in a slot's TempDir, also those with unreadable
// parts.
func RemoveJobs(dir string) error {
	return empty(dir, func(e fs.DirEntry) bool { return e.IsDir() && jobDir.MatchString(e.Name()) })
}

// empty removes what lies in a directory and is chosen, if the directory is there.
func empty(dir string, chosen func(fs.DirEntry) bool) error {
	return withRoot(dir, func(root *os.Root) error {
		entries, err := fs.ReadDir(root.FS(), ".")
		faults := []error{err}
		for _, e := range entries {
			if !chosen(e) || root.RemoveAll(e.Name()) == nil {
				continue
			}
			// Each directory is visited before it is read. Faults show in the removal.
			_ = fs.WalkDir(root.FS(), e.Name(), func(name string, d fs.DirEntry, err error) error {
				if d != nil && d.IsDir() && err == nil {
					_ = root.Chmod(name, 0o700)
				}
				return nil
			})
			faults = append(faults, root.RemoveAll(e.Name()))
		}
		return errors.Join(faults...)
	})
}

// withRoot calls f with a directory, if it is there. It follows no link on the way, because
// the slot's user could make one to another slot's jobs.
func withRoot(dir string, f func(*os.Root) error) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	fd, err := openPlain(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	defer unix.Close(fd)
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	defer root.Close()
	return f(root)
}

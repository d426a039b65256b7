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
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/docker"
)

// endedTime bounds what is done after a container has ended; the next one waits
// for it.
const endedTime = time.Minute

// Options say whose proxy it is.
type Options struct {
	Slot     *node.Slot
	UID, GID int    // of the slot's user: containers run as it
	Engine   string // the unix socket of the engine
	TempDir  string // whose jobs' directories may be mounted; the default is Slot.TempDir()

	// Pins are read for each container: an update holds from the next one on.
	Pins func() (*node.Pins, error)
	// Ended is called once for each container that has ended. The next container
	// is created when it has returned. Its error is logged. Nil: nothing is done.
	Ended func(ctx context.Context) error
	// Stuck is called when the engine cannot remove what the last job left: the next
	// job would fail like this one. Nil: nothing is done.
	Stuck func(ctx context.Context, why error)
	// Log is told of what was refused, created and ended: one line each, none of a
	// job's values in it. Nil: nobody is told.
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
}

// New returns the proxy of a slot. It asks the engine nothing yet.
func New(o Options) (*Proxy, error) {
	switch {
	case o.Slot == nil || o.Slot.Name == "":
		return nil, errors.New("proxy: got no slot")
	case o.UID <= 0 || o.GID <= 0:
		return nil, fmt.Errorf("proxy of %s: got user %d, group %d, want others than root's", o.Slot.Name, o.UID, o.GID)
	case o.Slot.MemoryBytes <= 0 || o.Slot.Pids <= 0 || o.Slot.CPUs == "":
		return nil, fmt.Errorf("proxy of %s: got %d bytes of memory, %d processes, cores %q, want all three limited",
			o.Slot.Name, o.Slot.MemoryBytes, o.Slot.Pids, o.Slot.CPUs)
	case o.Pins == nil:
		return nil, fmt.Errorf("proxy of %s: got no pins", o.Slot.Name)
	}
	o.TempDir = cmp.Or(o.TempDir, o.Slot.TempDir())
	if o.Ended == nil {
		o.Ended = func(context.Context) error { return nil }
	}
	if o.Stuck == nil {
		o.Stuck = func(context.Context, error) {}
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	p := &Proxy{Options: o, engine: docker.New(o.Engine), watched: map[string]chan struct{}{}}
	p.forward = &httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {}, // pass has made the request
		Transport:     p.engine.Transport(),
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
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": "kbnode: " + fmt.Sprintf(format, args...)})
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

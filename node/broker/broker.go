// Package broker hands secrets to the steps that may have them: on a vendor's
// node, as root, with the node's private keys.
//
// A step brings the envelope and a token that Buildkite has signed for its job.
// What the envelope is bound to is compared with what the token claims, and with
// nothing else: variables and files of a job are the job's own word. A node
// without such tokens has a host policy, which trusts what runs there as a
// whole and therefore opens less.
//
// Every answer is logged with who asked, for which job; no value ever is.
package broker

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/legacy"
	"github.com/gpu-mode/kbgen/secrets/refused"
)

// Limits of what strangers on the node may cost.
const (
	maxConnections = 32
	maxPerUser     = 4
	silenceLimit   = 2 * time.Second  // until the first byte of a connection
	talkLimit      = 30 * time.Second // from then to its last

	// Requests per second and at once, for each user and for each job. A request beyond
	// that waits, for talkLimit at most.
	askRate  = 5
	askBurst = 50
)

// A Broker answers on a socket. All fields but Signers and Old are required.
type Broker struct {
	Keys    []*secrets.PrivateKey
	policy  policy
	Signers []ed25519.PublicKey // nil: envelopes need no signature
	Old     *secrets.Binding    // which jobs it opens the old formats for; nil: for none
	Now     func() time.Time
	Log     *slog.Logger

	mu          sync.Mutex
	connections map[uint32]int           // by user
	rates       map[string]*rate.Limiter // by user and by job
}

// enter counts a connection of a user, unless there are enough.
func (b *Broker) enter(user uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.connections == nil {
		b.connections = map[uint32]int{}
	}
	if b.connections[user] >= maxPerUser {
		return false
	}
	b.connections[user]++
	return true
}

func (b *Broker) leave(user uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.connections[user]--; b.connections[user] == 0 {
		delete(b.connections, user)
	}
}

// maxRates bounds how many users and jobs are remembered.
const maxRates = 4096

// wait waits for the turn of a user or a job.
func (b *Broker) wait(ctx context.Context, who string) error {
	b.mu.Lock()
	if b.rates == nil || len(b.rates) >= maxRates {
		b.rates = map[string]*rate.Limiter{}
	}
	l := b.rates[who]
	if l == nil {
		l = rate.NewLimiter(askRate, askBurst)
		b.rates[who] = l
	}
	b.mu.Unlock()
	return l.Wait(ctx)
}

// Serve answers until ctx ends; then it finishes what it has begun. It closes
// the listener.
func (b *Broker) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	var talks sync.WaitGroup
	defer talks.Wait()
	free := make(chan struct{}, maxConnections)
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED):
			b.Log.Warn("accepting", "error", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		case err != nil:
			return err
		}
		select {
		case free <- struct{}{}:
		default: // somebody holds them all; who waits would hold one more
			b.Log.Warn("too many connections", "most", maxConnections)
			conn.Close()
			continue
		}
		who := peer(conn)
		if !b.enter(who.Uid) {
			b.Log.Warn("too many connections of one user", "uid", who.Uid, "most", maxPerUser)
			conn.Close()
			<-free
			continue
		}
		talks.Go(func() {
			defer func() { b.leave(who.Uid); <-free }()
			defer conn.Close()
			b.talk(ctx, conn, who)
		})
	}
}

// talk answers one request.
func (b *Broker) talk(ctx context.Context, conn net.Conn, caller unix.Ucred) {
	who := []any{"uid", caller.Uid, "pid", caller.Pid}
	in := bufio.NewReader(io.LimitReader(conn, client.MaxRequest))
	conn.SetDeadline(time.Now().Add(silenceLimit))
	if _, err := in.Peek(1); err != nil {
		return // it said nothing
	}
	conn.SetDeadline(time.Now().Add(talkLimit))
	ctx, stop := context.WithTimeout(ctx, talkLimit)
	defer stop()
	if b.wait(ctx, fmt.Sprintf("uid %d", caller.Uid)) != nil {
		return // the broker ends, or the user asks far too often
	}
	line, err := in.ReadBytes('\n')
	var r client.Request
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil || r.Version != 1 {
		b.Log.Warn("refused", append(who, "reason", refused.Malformed)...)
		answer(conn, client.Response{Refused: refused.Malformed, Detail: "got no request of version 1"})
		return
	}
	value, job, err := b.open(ctx, r)
	who = append(who, "name", text.Line(r.Name, 64), "job", text.Line(job.ID, 64), "pipeline", text.Line(job.Pipeline, 64), "step", text.Line(job.Step, 64))
	if r.Run != "" {
		who = append(who, "run", text.Line(r.Run, 64))
	}
	if err != nil {
		why, ok := errors.AsType[*refused.Refusal](err)
		if !ok {
			why = &refused.Refusal{Reason: refused.Malformed, Detail: "the request cannot be answered"}
		}
		b.Log.Warn("refused", append(who, "reason", why.Reason)...)
		answer(conn, client.Response{Refused: why.Reason, Detail: why.Detail})
		return
	}
	b.Log.Info("given", who...)
	answer(conn, client.Response{Value: value})
}

// open finds out who asks before it opens anything: a stranger learns nothing
// of an envelope, not even whether this node can open it.
func (b *Broker) open(ctx context.Context, r client.Request) ([]byte, asker, error) {
	job, err := b.policy.Identify(ctx, r.Token)
	if err != nil {
		return nil, asker{}, err
	}
	if job.ID != "" && b.wait(ctx, "job "+job.ID) != nil {
		return nil, job, &refused.Refusal{Reason: refused.Busy, Detail: "this job asks too often"}
	}
	if r.Old {
		value, err := b.openOld(r, job)
		return value, job, err
	}
	openAny := secrets.Open
	if job.Run = r.Run; r.Run != "" {
		openAny = secrets.OpenPayload
	}
	s, err := openAny(r.Envelope, secrets.Identities(b.Keys))
	if err != nil {
		return nil, job, err
	}
	if b.Signers != nil {
		if err := s.Signed(b.Signers); err != nil {
			return nil, job, err
		}
	}
	if err := b.policy.Allow(s, r.Name, b.Now(), job); err != nil {
		return nil, job, err
	}
	return s.Value, job, nil
}

// openOld opens a text in an old format.
func (b *Broker) openOld(r client.Request, job asker) ([]byte, error) {
	if b.Old == nil {
		return nil, &refused.Refusal{Reason: refused.WrongPipeline, Detail: "this node opens no old formats"}
	}
	// Texts in the old formats are bound to nothing, so the config says which jobs may have them.
	bound := *b.Old
	bound.Organization = job.Organization
	if err := bound.Admit(r.Name, job.Claims); err != nil {
		return nil, err
	}
	if err := secrets.CheckName(r.Name); err != nil {
		return nil, &refused.Refusal{Reason: refused.Renamed, Detail: err.Error()}
	}
	err := legacy.ErrOpen
	for _, k := range b.Keys {
		if k.RSA == nil {
			continue
		}
		var v *legacy.Value
		if v, err = legacy.Open(k.RSA, r.Envelope); err == nil && len(v.Text) > 0 {
			return v.Text, nil
		}
	}
	if errors.Is(err, legacy.ErrFormat) {
		return nil, &refused.Refusal{Reason: refused.Malformed, Detail: err.Error()}
	}
	return nil, &refused.Refusal{Reason: refused.UnknownRecipient, Detail: legacy.ErrOpen.Error()}
}

func answer(conn net.Conn, r client.Response) {
	line, err := json.Marshal(r)
	if err == nil {
		conn.Write(append(line, '\n')) // who went away needs no answer
	}
}

// peer says which process asks. Processes end and their numbers come again, so that
// the pid is for the log alone. It returns zeros if the kernel does not tell.
func peer(conn net.Conn) (who unix.Ucred) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return who
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return who
	}
	raw.Control(func(fd uintptr) {
		if got, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			who = *got
		}
	})
	return who
}

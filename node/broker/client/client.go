// Package client asks a node's broker for what a secret's envelope holds. It
// knows the messages and the socket; who may have what is the broker's business.
//
// kbrun is linked with it and has to stay small, so it speaks to the kernel
// without package net, and no key and no cipher comes with it.
package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets/refused"
)

// Socket is where a broker listens.
const Socket = "/run/kbnode/secretd.sock"

// Audience is what a job's tokens are for when nobody says otherwise; TokenClaims
// are what they have to claim beside what every token does.
const Audience = "kbnode"

// TokenClaims lists them.
func TokenClaims() []string { return []string{"organization_id", "pipeline_id", "queue_id"} }

// Bounds of messages, bytes: the longest payload, in base64 one way, and room for
// a token.
const (
	MaxRequest  = schema.MaxChunks*schema.MaxInline + 64<<10
	maxResponse = schema.MaxChunks*schema.MaxInline + 64<<10
)

// A Request asks for one value. It is one line of JSON.
type Request struct {
	Version  int    `json:"version"`       // 1
	Name     string `json:"name"`          // under which it was found
	Run      string `json:"run,omitempty"` // whose payload it is; "" of all that is no payload
	Envelope string `json:"envelope"`      // as it was found
	Old      bool   `json:"old"`           // the envelope is a text in one of the old formats
	Token    string `json:"token"`         // of the job, from Buildkite; "" where the node does not ask for one
}

// A Response is the value or why there is none. It is one line of JSON.
type Response struct {
	Value   []byte         `json:"value,omitempty"` // base64, as encoding/json has bytes
	Refused refused.Reason `json:"refused,omitempty"`
	Detail  string         `json:"detail,omitempty"`
}

// ErrNoBroker is a node without a broker, or one that does not answer.
var ErrNoBroker = errors.New("the node's broker does not answer")

// A broker that has too many callers hangs up before it answers. It is asked
// again for busyLimit at most, with pauses from retryPause to longPause.
const (
	busyLimit = 20 * time.Second
	longPause = time.Second
)

// errHungUp is a broker that ended the connection without a word.
var errHungUp = errors.New("it hung up")

// Get asks the broker at socket.
//
// Errors: *[refused.Refusal]; [ErrNoBroker].
func Get(ctx context.Context, socket string, r Request) ([]byte, error) {
	r.Version = 1
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	for pause := retryPause; ; pause = min(2*pause, longPause) {
		value, err := ask(ctx, socket, r.Name, append(line, '\n'))
		if !errors.Is(err, errHungUp) || time.Since(begun) > busyLimit {
			return value, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// ask asks once.
func ask(ctx context.Context, socket, name string, line []byte) ([]byte, error) {
	conn, err := dial(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNoBroker, socket, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, unsent := conn.Write(line) // who refuses early may have said why
	answer, err := bufio.NewReader(io.LimitReader(conn, maxResponse)).ReadBytes('\n')
	if err = errors.Join(unsent, err); len(answer) == 0 && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: %w: %w", ErrNoBroker, errHungUp, err)
	}
	if len(answer) == 0 || answer[len(answer)-1] != '\n' {
		return nil, fmt.Errorf("%w: %w", ErrNoBroker, err)
	}
	var got Response
	if err := json.Unmarshal(answer, &got); err != nil {
		return nil, fmt.Errorf("%w: its answer is not JSON", ErrNoBroker)
	}
	if got.Refused != "" {
		return nil, &refused.Refusal{Name: name, Reason: got.Refused, Detail: got.Detail}
	}
	if len(got.Value) == 0 {
		return nil, fmt.Errorf("%w: its answer holds no value", ErrNoBroker)
	}
	return got.Value, nil
}

// retryPause is between two tries to be let in.
const retryPause = 10 * time.Millisecond

// dial connects to a socket in the file system. A broker that has too many
// callers for a moment is waited for until ctx ends.
func dial(ctx context.Context, path string) (*os.File, error) {
	syscall.ForkLock.RLock() // no child shall have the socket; not every system can say so at once
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	for {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
		if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
			break
		}
		select {
		case <-time.After(retryPause):
			continue
		case <-ctx.Done():
			err = ctx.Err()
		}
		break
	}
	syscall.Close(fd)
	return nil, err
}

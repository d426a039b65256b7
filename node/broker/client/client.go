// Package client asks a node's broker for what a secret's envelope holds. It
// knows the messages and the socket; who may have what is the broker's business.
package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gpu-mode/kbgen/secrets"
)

// Socket is where a broker listens.
const Socket = "/run/kbnode/secretd.sock"

// Bounds of messages, bytes.
const (
	MaxRequest  = secrets.MaxEnvelope + 64<<10
	MaxResponse = 2*secrets.MaxValue + 64<<10
)

// A Request asks for one value. It is one line of JSON.
type Request struct {
	Version  int    `json:"version"`  // 1
	Name     string `json:"name"`     // under which it was found
	Envelope string `json:"envelope"` // as it was found
	Old      bool   `json:"old"`      // the envelope is a text in one of the old formats
	Token    string `json:"token"`    // of the job, from Buildkite; "" where the node does not ask for one
}

// A Response is the value or why there is none. It is one line of JSON.
type Response struct {
	Value   []byte         `json:"value,omitempty"` // base64, as encoding/json has bytes
	Refused secrets.Reason `json:"refused,omitempty"`
	Detail  string         `json:"detail,omitempty"`
}

// ErrNoBroker is a node without a broker, or one that does not answer.
var ErrNoBroker = errors.New("the node's broker does not answer")

// Get asks the broker at socket.
//
// Errors: *[secrets.Refusal]; [ErrNoBroker].
func Get(ctx context.Context, socket string, r Request) ([]byte, error) {
	r.Version = 1
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoBroker, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoBroker, err)
	}
	answer, err := bufio.NewReader(io.LimitReader(conn, MaxResponse)).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoBroker, err)
	}
	var got Response
	if err := json.Unmarshal(answer, &got); err != nil {
		return nil, fmt.Errorf("%w: its answer is not JSON", ErrNoBroker)
	}
	if got.Refused != "" {
		return nil, &secrets.Refusal{Name: r.Name, Reason: got.Refused, Detail: got.Detail}
	}
	if len(got.Value) == 0 {
		return nil, fmt.Errorf("%w: its answer holds no value", ErrNoBroker)
	}
	return got.Value, nil
}

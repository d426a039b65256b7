// Package docker speaks the few calls of docker's HTTP API that a node needs: find
// the containers of a slot, look at one, remove them, run a probe, pull an image.
// The client that docker publishes can do all of them, and costs every start of
// kbnode, of which there are several per job, more than they take. It knows
// nothing of slots.
//
// Source: docs.docker.com/reference/api/engine, versions 1.41 to 1.51.
package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

// maxAnswer bounds what is read of one answer.
const maxAnswer = 16 << 20

// A Client asks one engine.
type Client struct{ http.Client }

// New returns a client of the engine that listens on the unix socket.
func New(socket string) *Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return &Client{http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute,
		DisableCompression: true,
	}}}
}

// An Error is an answer of the engine that says no.
type Error struct {
	Status  int
	Message string // one line
}

func (e *Error) Error() string { return fmt.Sprintf("the engine says %d: %s", e.Status, e.Message) }

// Is reports whether err is an answer of the engine with this status.
func Is(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// Do sends one request, in as its body when not nil, and decodes the answer into
// out when that is not nil. The path begins with "/" and names no version, so that
// the engine takes it for its newest.
//
// Errors: [*Error] for a status of 400 or more.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	answer, err := c.Open(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	defer answer.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(answer, maxAnswer))
	} else {
		err = json.NewDecoder(io.LimitReader(answer, maxAnswer)).Decode(out)
	}
	if err != nil {
		return fmt.Errorf("asking the engine for %s: %w", path, err)
	}
	return nil
}

// Open is [Client.Do] for an answer that is read as it comes.
func (c *Client) Open(ctx context.Context, method, path string, query url.Values, in any) (io.ReadCloser, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(raw)
	}
	target := url.URL{Scheme: "http", Host: "docker", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.Client.Do(req)
	if err != nil {
		if made, ok := errors.AsType[*url.Error](err); ok { // its URL has a host that is made up
			err = made.Err
		}
		return nil, fmt.Errorf("asking the engine: %w", err)
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp.Body, nil
}

func refusal(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(raw, &said) != nil || said.Message == "" {
		said.Message = http.StatusText(resp.StatusCode)
	}
	return &Error{Status: resp.StatusCode, Message: text.Line(said.Message, 500)}
}

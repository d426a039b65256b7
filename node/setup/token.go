package setup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/schema/token"
)

const (
	minToken        = 16 // Buildkite's have more
	maxToken        = 1024
	buildkiteAgents = "https://agent.buildkite.com/v3"
)

// Token takes the agents' registration token from a file or an inherited descriptor,
// else from the machine below root, else from ask. Nil: there is none.
func Token(root, file string, fd *int, ask func() ([]byte, error)) ([]byte, error) {
	var raw []byte
	var err error
	from := file
	switch {
	case file != "":
		raw, err = readSmall(file)
	case fd != nil:
		from = fmt.Sprintf("descriptor %d", *fd)
		if raw, err = readDescriptor(*fd); err != nil {
			return nil, err
		}
	default:
		from = node.TokenPath
		raw, err = readSmall(filepath.Join(root, node.TokenPath))
		if errors.Is(err, fs.ErrNotExist) {
			if ask == nil {
				return nil, nil
			}
			from = "the terminal"
			raw, err = ask()
		}
	}
	if err != nil {
		return nil, readable(fmt.Errorf("the agents' token: %w", err))
	}
	raw = bytes.TrimSpace(raw)
	if why := notToken(raw); why != "" {
		return nil, node.Usagef("the agents' token, from %s: got %s, want an agent token of the cluster; nothing was changed", from, why)
	}
	return raw, nil
}

// readDescriptor reads a descriptor that was inherited. Those that this process
// opened itself are closed for whatever it starts.
func readDescriptor(fd int) ([]byte, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil, node.Usagef("--token-fd: got %d, which is not open", fd)
	}
	f := os.NewFile(uintptr(fd), "the agents' token")
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxToken+1))
}

func readSmall(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxToken+1))
}

// notToken says what a text is that cannot be an agent's token; "" if it can.
func notToken(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "nothing"
	case len(raw) > maxToken:
		return fmt.Sprintf("more than %d bytes", maxToken)
	case bytes.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "something with spaces, line ends or other characters that no token has"
	case bytes.HasPrefix(raw, []byte("bkua_")):
		return "a Buildkite API token"
	case len(raw) < minToken:
		return fmt.Sprintf("%d characters", len(raw))
	}
	for _, found := range token.All(string(raw)) {
		if found.What != "a Buildkite agent token" {
			return found.What
		}
	}
	return ""
}

// CheckToken asks the agent API whether it takes the token. It registers nothing:
// what a token is can be asked with it alone. A service that cannot say so does not
// stand in the way, which note and debug are told.
func CheckToken(ctx context.Context, endpoint string, raw []byte, note, debug func(format string, args ...any)) error {
	endpoint = strings.TrimSuffix(cmp.Or(endpoint, buildkiteAgents), "/")
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return node.Usagef("--endpoint: got %s, want an http or https URL", text.Quote(endpoint))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/token", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Token "+string(raw))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		note("note: the token is not checked, for %s does not answer: %s", endpoint, text.Line(err.Error(), 200))
		return nil
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s refuses the agents' token (status %d); nothing was changed", endpoint, answer.StatusCode)
	case http.StatusOK:
	default:
		debug("%s/token: status %d: the token is not checked", endpoint, answer.StatusCode)
	}
	return nil
}

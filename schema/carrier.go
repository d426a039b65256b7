package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

// ErrNoPayload is an environment in which no variable carries a payload.
var ErrNoPayload = errors.New("no payload: " + EnvPayload + " is not set")

// ErrPayloadTooLong is an encoded payload beyond MaxChunks variables.
var ErrPayloadTooLong = fmt.Errorf("an encoded payload may have %d characters at most", MaxChunks*MaxInline)

// PayloadVars lists every variable that may carry a part of a payload: what
// must be handed into a container, and unset before a submission runs.
func PayloadVars() []string {
	names := []string{EnvPayload, EnvOldPayload, EnvPayloadChunks, EnvPayloadSHA256}
	for i := range MaxChunks {
		names = append(names, EnvPayloadChunk(i))
	}
	return names
}

// PayloadEnv returns the variables that carry an encoded payload: one of up to
// [MaxInline] characters, or else numbered chunks with their count and the
// SHA-256 of the whole text in hex.
//
// Errors: [ErrPayloadTooLong].
func PayloadEnv(encoded string) (map[string]string, error) {
	if len(encoded) <= MaxInline {
		return map[string]string{EnvPayload: encoded}, nil
	}
	if len(encoded) > MaxChunks*MaxInline {
		return nil, fmt.Errorf("payload of %d characters: %w", len(encoded), ErrPayloadTooLong)
	}
	env := map[string]string{EnvPayloadSHA256: digest(encoded)}
	n := 0
	for rest := encoded; rest != ""; n++ {
		size := min(len(rest), MaxInline)
		env[EnvPayloadChunk(n)], rest = rest[:size], rest[size:]
	}
	env[EnvPayloadChunks] = strconv.Itoa(n)
	return env, nil
}

// FindPayload returns the encoded payload from whichever variables carry it.
// An empty variable counts as unset; the old name is read when no newer one is
// set.
//
// Errors: [ErrNoPayload]; one variable and chunks at once; chunks whose number,
// presence or SHA-256 is wrong.
func FindPayload(lookup func(string) (string, bool)) (string, error) {
	get := func(name string) string { v, _ := lookup(name); return v }
	inline, chunks := get(EnvPayload), get(EnvPayloadChunks)
	switch {
	case inline != "" && chunks != "":
		return "", fmt.Errorf("both %s and %s are set, want one carrier", EnvPayload, EnvPayloadChunks)
	case inline != "":
		return inline, nil
	case chunks != "":
		return joinChunks(get)
	}
	if old := get(EnvOldPayload); old != "" {
		return old, nil
	}
	return "", ErrNoPayload
}

// ReplacePayload puts another text into the variables that carry a payload, which
// must be no longer than what they carry: names that were handed on, to a container
// for one, stay right. It returns the variables that change.
//
// Errors: those of [FindPayload]; a text that is longer.
func ReplacePayload(lookup func(string) (string, bool), encoded string) (map[string]string, error) {
	old, err := FindPayload(lookup)
	if err != nil {
		return nil, err
	}
	if len(encoded) > len(old) {
		return nil, fmt.Errorf("a payload of %d characters in the place of one of %d: want none that is longer", len(encoded), len(old))
	}
	get := func(name string) string { v, _ := lookup(name); return v }
	if get(EnvPayloadChunks) == "" {
		name := EnvPayload
		if get(name) == "" {
			name = EnvOldPayload
		}
		return map[string]string{name: encoded}, nil
	}
	n, _ := strconv.Atoi(get(EnvPayloadChunks))            // FindPayload read it
	encoded += strings.Repeat(" ", max(0, n-len(encoded))) // no chunk may be empty
	env := map[string]string{EnvPayloadSHA256: digest(encoded)}
	for i := range n {
		env[EnvPayloadChunk(i)] = encoded[i*len(encoded)/n : (i+1)*len(encoded)/n]
	}
	return env, nil
}

// LookupEnv finds a variable in an environment of "NAME=value"; of several the last one.
func LookupEnv(env []string, name string) (value string, ok bool) {
	for _, pair := range slices.Backward(env) {
		if value, ok = strings.CutPrefix(pair, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// WithoutPayload returns an environment less what carries a payload, for programs
// that need none: it may be too long for some. It writes over env.
func WithoutPayload(env []string) []string {
	return slices.DeleteFunc(env, func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		if rest, second := strings.CutPrefix(name, EnvSecretPrefix); second {
			name = EnvPrefix + rest
		}
		return slices.Contains(PayloadVars(), name)
	})
}

func joinChunks(get func(string) string) (string, error) {
	n, err := strconv.Atoi(get(EnvPayloadChunks))
	if err != nil || n < 1 || n > MaxChunks {
		return "", fmt.Errorf("%s: got %s, want 1 to %d", EnvPayloadChunks, text.Quote(get(EnvPayloadChunks)), MaxChunks)
	}
	var b strings.Builder
	for i := range n {
		chunk := get(EnvPayloadChunk(i))
		if chunk == "" {
			return "", fmt.Errorf("%s is not set, want %d chunks", EnvPayloadChunk(i), n)
		}
		b.WriteString(chunk)
	}
	if got, want := digest(b.String()), get(EnvPayloadSHA256); got != want {
		return "", fmt.Errorf("%s: the %d chunks have SHA-256 %s, want %s", EnvPayloadSHA256, n, got, text.Quote(want))
	}
	return b.String(), nil
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

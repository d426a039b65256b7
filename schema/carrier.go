package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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

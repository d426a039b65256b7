package schema

import (
	"compress/zlib"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Limits of a result that travels in a build's meta-data beside its artifact.
// Every list of builds repeats the value, so it is kept small: Buildkite would
// take 100 kB.
const (
	MaxInlineResult    = 16 << 10 // characters of the value
	MaxInlineResultRaw = 1 << 20  // bytes of the result.json in it
)

// inlineVersion begins the value, which is
// "<version> <job id> <SHA-256 of result.json, hex> <base64 of its zlib stream>".
const inlineVersion = "kbr1"

// InlineResult is the value for [MetaResult] that holds a result.json written in
// the job; false when it would be too long.
func InlineResult(raw []byte, job string) (string, bool) {
	if len(raw) > MaxInlineResultRaw || job == "" || strings.ContainsAny(job, " \t\n") {
		return "", false
	}
	value := strings.Join([]string{inlineVersion, job, digest(string(raw)), pack(raw, zlib.BestCompression)}, " ")
	return value, len(value) <= MaxInlineResult
}

// ParseInlineResult returns the result.json in a value of [MetaResult], and the
// job that wrote it.
//
// Errors: a longer or another form, or a result.json that does not have the
// digest. None quotes the value.
func ParseInlineResult(value string) (raw []byte, job string, err error) {
	if len(value) > MaxInlineResult {
		return nil, "", fmt.Errorf("inline result: got %d characters, want at most %d", len(value), MaxInlineResult)
	}
	parts := strings.Split(value, " ")
	if len(parts) != 4 || parts[0] != inlineVersion {
		return nil, "", fmt.Errorf("inline result: got another form, want %s and three words", inlineVersion)
	}
	packed, err := base64.StdEncoding.DecodeString(parts[3])
	if err != nil {
		return nil, "", errors.New("inline result: not padded standard base64")
	}
	raw, err = unpack(packed, MaxInlineResultRaw)
	if err != nil {
		return nil, "", fmt.Errorf("inline result: %v", err)
	}
	if len(raw) > MaxInlineResultRaw {
		return nil, "", fmt.Errorf("inline result: more than %d bytes", MaxInlineResultRaw)
	}
	if digest(string(raw)) != parts[2] {
		return nil, "", errors.New("inline result: it does not have the digest beside it")
	}
	return raw, parts[1], nil
}

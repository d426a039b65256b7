package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// minNeedle is the length below which the agent redacts nothing, bytes.
const minNeedle = 6

// maxNeedles bounds the forms of one value: a file of many lines has the first
// ones redacted each, and all of them as a whole.
const maxNeedles = 256

// Needles are the texts by which a value is recognized in what a job prints:
// itself, each of its lines, and its base64 (also behind other text), hexadecimal, URL
// and JSON forms.
// Those shorter than six bytes are left out, since nothing redacts them. What
// is not UTF-8 is recognized by its encoded forms.
func Needles(value []byte) []string {
	var all []string
	add := func(forms ...string) {
		for _, s := range forms {
			if len(s) >= minNeedle && len(all) < maxNeedles && utf8.ValidString(s) && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	encoded := func(v []byte) {
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			add(e.EncodeToString(v))
		}
		add(hex.EncodeToString(v), strings.ToUpper(hex.EncodeToString(v)))
		add(url.QueryEscape(string(v)), url.PathEscape(string(v)))
	}
	// Behind other text, as in base64 of "user:token", the value begins and may end
	// within a group of three bytes. The characters that it shares with its neighbours
	// are left out.
	for before := range 3 {
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			s := e.EncodeToString(append(make([]byte, before), value...))
			if (before+len(value))%3 != 0 {
				s = s[:len(s)-1]
			}
			if before > 0 {
				s = s[min(before+1, len(s)):]
			}
			add(s)
		}
	}
	whole := string(value)
	add(whole, strings.TrimSpace(whole))
	encoded(value)
	encoded(append(bytes.Clone(value), '\n')) // what echo makes of it
	if quoted, err := json.Marshal(whole); err == nil && utf8.ValidString(whole) {
		add(string(quoted[1 : len(quoted)-1]))
	}
	for line := range strings.Lines(whole) {
		add(strings.TrimSpace(line))
	}
	return all
}

// RedactorChunks are JSON objects for buildkite-agent redactor add --format
// json that name every needle of a value. Each has at most limit bytes, or one
// needle that has more.
func RedactorChunks(name string, value []byte, limit int) [][]byte {
	var chunks [][]byte
	var chunk []byte
	for i, needle := range Needles(value) {
		key, _ := json.Marshal(name + "_" + strconv.Itoa(i))
		text, _ := json.Marshal(needle) // a string: no error
		if chunk != nil && len(chunk)+len(key)+len(text)+3 > limit {
			chunks, chunk = append(chunks, append(chunk, '}')), nil
		}
		separator := byte(',')
		if chunk == nil {
			separator = '{'
		}
		chunk = append(append(append(append(chunk, separator), key...), ':'), text...)
	}
	if chunk != nil {
		chunks = append(chunks, append(chunk, '}'))
	}
	return chunks
}

package job

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// maxPayloadFile is the limit on a payload's file, in bytes.
const maxPayloadFile = 16 << 20

// ReadPayload decodes the payload in file, "-" being stdin, as encoded or as
// JSON; without a file the one that the environment carries. What is sealed is
// opened by open; nil opens nothing.
func ReadPayload(file string, stdin io.Reader, lookup func(string) (string, bool), open Opener) (*schema.Payload, error) {
	if file == "" {
		encoded, err := schema.FindPayload(lookup)
		if err != nil {
			return nil, err
		}
		return decodePayload(encoded, open)
	}
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("reading the payload: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxPayloadFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the payload: %w", err)
	case len(data) > maxPayloadFile:
		return nil, fmt.Errorf("payload file: more than %d bytes", maxPayloadFile)
	case strings.HasPrefix(strings.TrimSpace(string(data[:min(len(data), 100)])), "{"):
		return schema.ParsePayload(data)
	}
	return decodePayload(string(data), open)
}

func decodePayload(encoded string, open Opener) (*schema.Payload, error) {
	encoded = strings.TrimSpace(encoded)
	if sealed(encoded) {
		if open == nil {
			return nil, errSealed
		}
		var err error
		if encoded, err = open(encoded); err != nil {
			return nil, err
		}
	}
	return schema.DecodePayload(encoded)
}

package task

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// maxSubmission is Kernelbot's own limit, in bytes.
const maxSubmission = 1_000_000

// ReadSubmission reads a submission of the given name.
func ReadSubmission(r io.Reader, name string) (schema.File, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSubmission+1))
	switch {
	case err != nil:
		return schema.File{}, fmt.Errorf("submission: %w", err)
	case len(data) == 0:
		return schema.File{}, fmt.Errorf("submission %s is empty", name)
	case len(data) > maxSubmission:
		return schema.File{}, fmt.Errorf("submission %s: more than %d bytes", name, maxSubmission)
	case strings.ToValidUTF8(string(data), "") != string(data):
		return schema.File{}, fmt.Errorf("submission %s is not UTF-8 text", name)
	}
	return schema.File{Name: name, Text: string(data)}, nil
}

// OpenSubmission reads a file, or standard input for "-", which gets a name with
// the extension.
func OpenSubmission(stdin io.Reader, name, extension string) (schema.File, error) {
	if name == "-" {
		return ReadSubmission(stdin, "stdin"+extension)
	}
	f, err := os.Open(name)
	if err != nil {
		return schema.File{}, fmt.Errorf("submission: %w", err)
	}
	defer f.Close()
	return ReadSubmission(f, name)
}

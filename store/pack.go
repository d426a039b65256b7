package store

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"

	"github.com/gpu-mode/kbgen/schema"
)

// pack compresses a document for a column.
func pack(raw []byte) []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	w.Write(raw) // into memory, which does not fail
	w.Close()
	return b.Bytes()
}

// unpack is the reverse of pack.
func unpack(body []byte) ([]byte, error) {
	r, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("a kept document: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(r, schema.MaxResult+1))
	if err == nil && len(raw) > schema.MaxResult {
		err = fmt.Errorf("got more than %d bytes", schema.MaxResult)
	}
	if err != nil {
		return nil, fmt.Errorf("a kept document: %w", err)
	}
	return raw, nil
}

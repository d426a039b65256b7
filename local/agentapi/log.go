package agentapi

import (
	"bytes"
	"compress/gzip"
	"io"
	"strconv"

	"github.com/gpu-mode/kbgen/local/engine"
)

// chunk takes a part of a job's log, gzipped. offset and size count bytes
// before compression; chunks arrive out of order.
func (a *API) chunk(c *call) (any, error) {
	query := c.URL.Query()
	offset, err := strconv.ParseInt(query.Get("offset"), 10, 64)
	if err != nil {
		return nil, engine.Refuse(engine.BadRequest, "offset: got %q, want a number of bytes", query.Get("offset"))
	}
	size, err := strconv.Atoi(query.Get("size"))
	if err != nil || size < 0 || size > engine.MaxChunk {
		return nil, engine.Refuse(engine.BadRequest, "size: got %q, want 0 to %d bytes", query.Get("size"), engine.MaxChunk)
	}
	data, err := c.read()
	if err != nil {
		return nil, err
	}
	switch encoding := c.Header.Get("Content-Encoding"); encoding {
	case "gzip":
		if data, err = inflate(data, size); err != nil {
			return nil, err
		}
	case "":
	default:
		return nil, engine.Refuse(engine.BadRequest, "Content-Encoding: got %q, want gzip", encoding)
	}
	if len(data) != size {
		return nil, engine.Refuse(engine.BadRequest, "the chunk has %d bytes, its size says %d", len(data), size)
	}
	return nil, a.engine.WriteLog(c.job.ID, offset, data)
}

// inflate stops one byte behind size.
func inflate(data []byte, size int) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, engine.Refuse(engine.BadRequest, "the chunk is not gzip: %v", err)
	}
	out, err := io.ReadAll(io.LimitReader(z, int64(size)+1))
	if err != nil {
		return nil, engine.Refuse(engine.BadRequest, "the chunk is not gzip: %v", err)
	}
	return out, nil
}

// headerTimes takes the times of log headers of agents with
// --no-ansi-timestamps, and drops them: nothing shows them.
func (a *API) headerTimes(*call, struct {
	Times map[string]string `json:"header_times"`
}) (any, error) {
	return nil, nil
}

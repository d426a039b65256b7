package engine

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Limits of a job's log, bytes, as agents are told. A log of [MaxLog] is the
// largest that the service takes.
const (
	MaxChunk = 102_400
	MaxLog   = 1 << 30
)

// logState follows one job's log.
type logState struct {
	contiguous int64           // bytes from the start without a gap
	pending    map[int64]int64 // later chunks: offset to end
}

func (e *Engine) logPath(jobID string) string {
	return filepath.Join(e.opts.Dir, "logs", jobID+".log")
}

// WriteLog stores a chunk of a job's log at its offset. Chunks may come out of
// order, and twice.
func (e *Engine) WriteLog(jobID string, offset int64, data []byte) error {
	return change(e, e.findJob, jobID, func(j *job) error {
		end := offset + int64(len(data))
		switch {
		case offset < 0 || end > MaxLog:
			return Refuse(Invalid, "Log chunk at %d of %d bytes is outside of 0 to %d", offset, len(data), int64(MaxLog))
		case !j.State.Held() || j.State == JobAssigned:
			return Refuse(Invalid, "Job is %s and takes no log", j.State)
		}
		f, err := os.OpenFile(e.logPath(jobID), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(data, offset)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		if j.log.add(offset, end) {
			e.publish(EventJobLog, j.build, j, nil)
		}
		return nil
	})
}

// add notes a stored range; it reports whether the gapless part grew.
func (l *logState) add(offset, end int64) bool {
	if offset > l.contiguous {
		if l.pending == nil {
			l.pending = map[int64]int64{}
		}
		l.pending[offset] = max(end, l.pending[offset])
		return false
	}
	before := l.contiguous
	l.contiguous = max(l.contiguous, end)
	for grown := true; grown; {
		grown = false
		for at, to := range l.pending {
			if at <= l.contiguous {
				l.contiguous = max(l.contiguous, to)
				delete(l.pending, at)
				grown = true
			}
		}
	}
	return l.contiguous > before
}

// Log opens a job's log for reading: the bytes the agent sent, with ANSI
// codes and timestamps. A job without output has an empty log.
func (e *Engine) Log(jobID string) (*os.File, error) {
	e.mu.Lock()
	_, err := e.findJob(jobID)
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(e.logPath(jobID))
	if errors.Is(err, os.ErrNotExist) {
		return os.Open(os.DevNull)
	}
	return f, err
}

// ReadLog returns the part of a job's log between two offsets.
func (e *Engine) ReadLog(jobID string, from, to int64) ([]byte, error) {
	f, err := e.Log(jobID)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, from, to-from))
}

package engine

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
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
	file       *os.File        // open while the job runs
}

// A logStore keeps a file per job.
type logStore struct {
	dir  string
	mu   sync.Mutex
	open map[*os.File]struct{}
}

func (s *logStore) path(jobID string) string { return filepath.Join(s.dir, jobID+".log") }

func (s *logStore) create(jobID string) (*os.File, error) {
	f, err := os.OpenFile(s.path(jobID), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*os.File]struct{}{}
	}
	s.open[f] = struct{}{}
	return f, nil
}

func (s *logStore) finish(l *logState) {
	if l.file == nil {
		return
	}
	s.mu.Lock()
	delete(s.open, l.file)
	s.mu.Unlock()
	_ = l.file.Close() // every write was checked
	l.file = nil
}

func (s *logStore) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for f := range s.open {
		errs = append(errs, f.Close())
	}
	s.open = nil
	return errors.Join(errs...)
}

// WriteLog stores a chunk of a job's log at its offset. Chunks may come out of
// order, and twice.
func (e *Engine) WriteLog(jobID string, offset int64, data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.findJob(jobID)
	if err != nil {
		return err
	}
	end := offset + int64(len(data))
	switch {
	case offset < 0 || end > MaxLog:
		return refuse(Invalid, "Log chunk at %d of %d bytes is outside of 0 to %d", offset, len(data), int64(MaxLog))
	case !j.State.Held() || j.State == JobAssigned:
		return refuse(Invalid, "Job is %s and takes no log", j.State)
	}
	if j.log.file == nil {
		if j.log.file, err = e.logs.create(jobID); err != nil {
			return err
		}
	}
	if _, err := j.log.file.WriteAt(data, offset); err != nil {
		return err
	}
	if j.log.add(offset, end) {
		e.publish(EventJobLog, j.build, j, nil)
	}
	return nil
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
func (e *Engine) Log(jobID string) (io.ReadSeekCloser, error) {
	e.mu.Lock()
	_, err := e.findJob(jobID)
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(e.logs.path(jobID))
	if errors.Is(err, os.ErrNotExist) {
		return emptyLog{}, nil
	}
	return f, err
}

type emptyLog struct{}

func (emptyLog) Read([]byte) (int, error)       { return 0, io.EOF }
func (emptyLog) Seek(int64, int) (int64, error) { return 0, nil }
func (emptyLog) Close() error                   { return nil }

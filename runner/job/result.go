package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/google/renameio/v2"
	"github.com/gpu-mode/kbgen/schema"
)

// reserveSize is the room on disk that is taken up front for a result, in
// bytes: enough for every text of a leaderboard run, though not for a profile.
const reserveSize = 512 << 10

// A resultFile is where the result goes. From the beginning there is one,
// which says that kbrun ended without a word; the real one takes its place.
type resultFile struct {
	path    string
	reserve *os.File
}

// newResultFile removes an older result, which must not pass for this run's,
// takes room on the disk and leaves the first result.
//
// Errors: out cannot be used, which is wrong usage; or the file cannot be
// written.
func newResultFile(out, runID string) (*resultFile, error) {
	if err := clearResult(out); err != nil {
		return nil, err
	}
	silent, err := blank(runID, schema.OutcomeRunner, "kbrun ended without a word: it was killed, or the machine went down").Encode()
	if err == nil {
		err = renameio.WriteFile(out, silent, 0o644, renameio.WithTempDir(filepath.Dir(out)), renameio.IgnoreUmask())
	}
	if err != nil {
		return nil, fmt.Errorf("writing the result: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(out), ".result-*")
	if err != nil {
		return nil, fmt.Errorf("writing the result: %w", err)
	}
	r := &resultFile{out, f}
	err = unix.Fallocate(int(f.Fd()), 0, 0, reserveSize)
	if err != nil && !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, syscall.ENOSYS) {
		r.drop()
		return nil, fmt.Errorf("taking room for the result: %w", err)
	}
	return r, nil
}

// blank is a result with an outcome and no runs.
func blank(runID, outcome, text string) *schema.Result {
	r := &schema.Result{RunID: runID, System: schema.SystemInfo{DeviceCount: 1}, Outcome: schema.NewOutcome(outcome, text)}
	r.Error = r.Outcome.Text
	return r
}

// A DirectoryError is a directory where the result should go.
type DirectoryError struct{ Path string }

func (e *DirectoryError) Error() string {
	return fmt.Sprintf("--out: %s is a directory, want a file", e.Path)
}

func clearResult(out string) error {
	info, err := os.Lstat(out)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() {
		return &DirectoryError{out}
	}
	if err := os.Remove(out); err != nil {
		return fmt.Errorf("removing the older result: %w", err)
	}
	return nil
}

// write puts the whole result in place. On a full disk, what does not fit into
// the room taken up front is left out, and the outcome becomes disk-full when
// the verdict itself cannot be told without it.
func (r *resultFile) write(result *schema.Result) error {
	data, err := encodeBounded(result)
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	err = r.fill(data)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		diskFull := schema.NewOutcome(schema.OutcomeDiskFull, "the machine's disk is full: the profile could not be kept")
		data, encErr := shorter(result, "the disk is full", diskFull).Encode()
		err = errors.Join(encErr, r.fill(data))
	}
	if err == nil {
		err = errors.Join(r.reserve.Close(), rename(r.reserve.Name(), r.path))
	}
	if err != nil {
		r.drop()
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// encodeBounded keeps the result to what its readers take: without the texts, or
// as the submission's fault when its reports alone are too long.
func encodeBounded(result *schema.Result) ([]byte, error) {
	data, err := result.Encode()
	if err != nil || len(data) <= schema.MaxResult {
		return data, err
	}
	size := len(data)
	if data, err = shorter(result, tooLong, result.Outcome).Encode(); err != nil || len(data) <= schema.MaxResult {
		return data, err
	}
	long := *result
	long.Runs, long.Ambiguous = nil, nil
	long.Outcome = schema.NewOutcome(schema.OutcomeReportTooLong, fmt.Sprintf("the result has %d bytes, at most %d are allowed", size, schema.MaxResult))
	return long.Encode()
}

// fill writes data into the room, which it needs no more of than data has.
func (r *resultFile) fill(data []byte) error {
	if _, err := r.reserve.WriteAt(data, 0); err != nil {
		return err
	}
	return errors.Join(r.reserve.Truncate(int64(len(data))), r.reserve.Chmod(0o644))
}

func (r *resultFile) drop() {
	r.reserve.Close()
	os.Remove(r.reserve.Name())
}

const tooLong = "the result is too long"

// shorter is the result without the texts and traces that make it long, and
// why. A verdict stays what it is; only what a person would read is gone. With
// a profile, that was all the job was for: then it ends as unprofiled.
func shorter(r *schema.Result, why string, unprofiled schema.Outcome) *schema.Result {
	gone := "[left out: " + why + "]"
	out := *r
	out.Runs = nil
	for _, run := range r.Runs {
		if c := run.Compilation; c != nil {
			short := *c
			short.Stdout, short.Stderr = gone, gone
			run.Compilation = &short
		}
		if t := run.Run; t != nil {
			short := *t
			short.Stdout, short.Stderr = gone, gone
			run.Run = &short
		}
		if run.Profile != nil {
			run.Profile = nil
			out.Outcome = unprofiled
			if out.Outcome.ExitStatus() != 0 {
				out.Success, out.Error = false, out.Outcome.Text
			}
		}
		out.Runs = append(out.Runs, run)
	}
	return &out
}

// rename puts the result in place. A directory there was none when kbrun
// started: the submission made it.
func rename(from, to string) error {
	if os.Rename(from, to) == nil {
		return nil
	}
	if info, err := os.Lstat(to); err == nil && info.IsDir() {
		os.RemoveAll(to) // the rename tells when it did not work
	}
	return os.Rename(from, to)
}

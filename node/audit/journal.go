package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/journal"

	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/schema/text"
)

// maxValue bounds a value from the journal, in runes; maxEntry an entry as JSON, in bytes.
const (
	maxValue = 200
	maxEntry = 1 << 20
)

// Report sends a record to the journal. Call it when a job begins, and again with Ended
// set when the job has ended. On a slot without containers no root process sees the
// job, and the slot's user must not write the audit files, so [Collect] copies the
// record from the journal.
func Report(r Record) error {
	message, fields := reported(r)
	return journal.Send(message, journal.PriInfo, fields)
}

func reported(r Record) (message string, fields map[string]string) {
	fields = map[string]string{"KBNODE_SLOT": r.Slot, "KBNODE_JOB": r.Job, "KBNODE_PIPELINE": r.Pipeline, "KBNODE_BUILD": r.Build, "KBNODE_STEP": r.Step}
	for name, value := range fields {
		fields[name] = text.Line(value, maxValue)
	}
	if r.Ended.IsZero() {
		return "kbnode: the job begins: " + fields["KBNODE_JOB"], fields
	}
	fields["KBNODE_STATUS"] = strconv.Itoa(r.Status)
	return "kbnode: the job has ended: " + fields["KBNODE_JOB"], fields
}

// Collect appends the record of the job that ran in one invocation of a slot's unit, if
// one did. Such a unit ends with its job, so that there is at most one. The program
// journalctl reads the journal.
func Collect(ctx context.Context, root, slot, invocation, journalctl string) error {
	// An entry of a moment ago may not be stored yet.
	_, unsynced := system.Run(ctx, journalctl, "--sync")
	path, ok := system.Look(journalctl)
	if !ok {
		return unsynced
	}
	cmd := exec.CommandContext(ctx, path, "--quiet", "--output=json",
		"--output-fields=KBNODE_JOB,KBNODE_PIPELINE,KBNODE_BUILD,KBNODE_STEP,KBNODE_STATUS", "_SYSTEMD_INVOCATION_ID="+invocation, "KBNODE_SLOT="+slot)
	cmd.Env = system.Environ()
	entries, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r, err := read(slot, entries)
	if r != nil {
		err = errors.Join(err, Append(root, *r))
	}
	_, _ = io.Copy(io.Discard, entries) // so that journalctl ends by itself
	return errors.Join(unsynced, err, cmd.Wait())
}

// read makes a record of the entries. Only the first entry names the job, because
// [Report] sent it before the job's command began. The job itself may have sent later
// entries, so they only set how it ended. read does not hold entries in memory, because
// a job may send many.
func read(slot string, entries io.Reader) (*Record, error) {
	var r *Record
	lines := bufio.NewScanner(entries)
	lines.Buffer(nil, maxEntry)
	for lines.Scan() {
		var e map[string]any // a value that is too long, binary or repeated is not a string
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return r, fmt.Errorf("reading the journal: %w", err)
		}
		value := func(name string) string { s, _ := e[name].(string); return text.Line(s, maxValue) }
		stamp, _ := strconv.ParseInt(value("__REALTIME_TIMESTAMP"), 10, 64)
		moment := time.UnixMicro(stamp).UTC()
		if r == nil {
			r = &Record{Slot: slot, Job: value("KBNODE_JOB"), Pipeline: value("KBNODE_PIPELINE"), Build: value("KBNODE_BUILD"), Step: value("KBNODE_STEP"),
				Began: moment, Ended: time.Now().UTC(), Status: -1}
		}
		if status, err := strconv.Atoi(value("KBNODE_STATUS")); err == nil {
			r.Status, r.Ended = status, moment
		}
	}
	return r, lines.Err()
}

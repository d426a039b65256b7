package schema

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

// MaxResult is the limit on result.json, in bytes. A profile's trace is the
// one large thing in it.
const MaxResult = 64 << 20

// DecodeResult reads a result.json, Kernelbot's own or [Result.Encode]'s.
//
// Keys it does not know are ignored; known ones have their exact spelling and
// type. success, error, system, run_id and outcome may be missing; times
// without an offset are taken as UTC, with more than six fraction digits cut.
//
// Errors name the key, and quote no output of a submission.
func DecodeResult(data []byte) (*Result, error) {
	return DecodeResultContext(context.Background(), data)
}

// DecodeResultContext is [DecodeResult], and stops with ctx's error when ctx ends.
func DecodeResultContext(ctx context.Context, data []byte) (*Result, error) {
	if len(data) > MaxResult {
		return nil, &Finding{Path: "result", Got: fmt.Sprintf("%d bytes", len(data)), Want: fmt.Sprintf("at most %d", MaxResult)}
	}
	root, err := parseJSONContext(ctx, data)
	if err != nil {
		return nil, fmt.Errorf("result: json: %w", err)
	}
	if root.kind != kindObject {
		return nil, &Finding{Path: "result", Got: root.kind.String(), Want: kindObject.String()}
	}
	d := &fields{node: root, path: "result: ", err: new(error)}
	r := &Result{Success: d.bool("success", false), System: SystemInfo{DeviceCount: 1}, RunID: d.str("run_id", false)}
	if !d.null("error") {
		r.Error = d.str("error", true)
	}
	if !d.null("system") {
		r.System = object(d, "system", (*fields).system)
	}
	r.Outcome, r.Runs = object(d, "outcome", (*fields).outcome), object(d, "runs", (*fields).runs)
	if d.null("runs") {
		d.fault("runs", "no such key", kindObject.String())
	}
	if *d.err != nil {
		return nil, *d.err
	}
	r.Evidence = evidence(root)
	return r, nil
}

func (d *fields) system() SystemInfo {
	s := SystemInfo{
		GPU: d.str("gpu", false), DeviceCount: 1, CPU: d.str("cpu", false), Runtime: d.str("runtime", false),
		Platform: d.str("platform", false), Torch: d.str("torch", false), Hostname: d.str("hostname", false),
	}
	if _, ok := d.node.get("device_count"); ok {
		s.DeviceCount = int(d.int("device_count"))
	}
	return s
}

// outcome reads an outcome. Its name may be one that a later runner knows; its
// fault may not.
func (d *fields) outcome() Outcome {
	o := Outcome{Name: d.str("name", true), Fault: d.str("fault", true), Retry: d.bool("retry", true), Text: d.str("text", false), Phase: d.str("phase", false)}
	if !slices.Contains(Faults(), o.Fault) {
		d.fault("fault", text.Quote(o.Fault), fmt.Sprintf("one of %q", Faults()))
	}
	return o
}

func (d *fields) runs() Runs {
	var runs Runs
	for i := range d.node.members { // not by name: a hostile result has many
		m := &d.node.members[i]
		if m.value.kind != kindObject {
			d.fault(m.name, "no object", kindObject.String())
			return nil
		}
		runs = append(runs, Run{m.name, d.within(m.name, &m.value).eval()})
		if *d.err != nil {
			return nil
		}
	}
	return runs
}

func (d *fields) eval() EvalResult {
	return EvalResult{
		Start: d.time("start"), End: d.time("end"), Compilation: object(d, "compilation", (*fields).compilation),
		Run: object(d, "run", (*fields).run), Profile: object(d, "profile", (*fields).profile),
	}
}

func (d *fields) compilation() *CompileResult {
	return &CompileResult{
		NvccFound: d.bool("nvcc_found", true), NvccVersion: d.str("nvcc_version", true), Success: d.bool("success", true),
		Command: d.str("command", true), Stdout: d.str("stdout", true), Stderr: d.str("stderr", true),
		ExitCode: int(d.int("exit_code")),
	}
}

func (d *fields) run() *RunResult {
	return &RunResult{
		Success: d.bool("success", true), Passed: d.bool("passed", true), Command: d.str("command", true),
		Stdout: d.str("stdout", true), Stderr: d.str("stderr", true), ExitCode: int(d.int("exit_code")),
		Duration: d.float("duration", true), Result: d.report(),
	}
}

func (d *fields) report() Report {
	v := d.get("result", true, kindObject)
	if v == nil {
		return nil
	}
	var r Report
	for _, m := range v.members {
		if m.value.kind != kindString {
			d.fault("result", m.value.kind.String()+" for "+text.Quote(m.name), "strings")
			return nil
		}
		r = append(r, Entry{m.name, m.value.text})
	}
	return r
}

func (d *fields) profile() *ProfileResult {
	p := &ProfileResult{Profiler: d.str("profiler", true), Trace: d.str("trace", true)}
	if !d.null("download_url") {
		url := d.str("download_url", true)
		p.DownloadURL = &url
	}
	return p
}

func (d *fields) time(key string) time.Time {
	value := d.str(key, true)
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, value); err == nil && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 {
			return t.UTC().Truncate(time.Microsecond)
		}
	}
	d.fault(key, text.Quote(value), "a time like 2006-01-02T15:04:05.000000+00:00")
	return time.Time{}
}

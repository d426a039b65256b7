package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// stampLayout is what Python's datetime.fromisoformat reads in every version
// that Kernelbot runs on.
const stampLayout = "2006-01-02T15:04:05.000000-07:00"

// Encode returns result.json, indented, with a line end. Every string is
// passed through [Clean]. Kernelbot's keys come first, in its order; then
// run_id and outcome.
//
// Errors: two runs of one name, or a duration that is not a number.
func (r *Result) Encode() ([]byte, error) {
	seen := map[string]bool{}
	var faults []error
	for _, run := range r.Runs {
		if seen[run.Name] {
			faults = append(faults, fmt.Errorf("encoding result: two runs are called %q", run.Name))
		}
		seen[run.Name] = true
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	flat, err := json.Marshal(r.object())
	if err != nil {
		return nil, fmt.Errorf("encoding result: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, flat, "", "  "); err != nil {
		return nil, fmt.Errorf("encoding result: %w", err)
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// object is a JSON object in the order it is written down.
type object []pair

type pair struct {
	key   string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, p := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := appendJSON(&b, p.key); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := appendJSON(&b, p.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func appendJSON(b *bytes.Buffer, value any) error {
	if s, ok := value.(string); ok {
		value = Clean(s)
	}
	if f, ok := value.(float64); ok {
		value = json.Number(strconv.FormatFloat(f, 'g', -1, 64))
	}
	text, err := json.Marshal(value)
	b.Write(text)
	return err
}

func (r *Result) object() object {
	runs := object{}
	for i := range r.Runs {
		runs = append(runs, pair{r.Runs[i].Name, r.Runs[i].object()})
	}
	s := r.System
	return object{
		{"success", r.Success},
		{"error", r.Error},
		{"system", object{
			{"gpu", s.GPU}, {"device_count", s.DeviceCount}, {"cpu", s.CPU}, {"runtime", s.Runtime},
			{"platform", s.Platform}, {"torch", s.Torch}, {"hostname", s.Hostname},
		}},
		{"runs", runs},
		{"run_id", r.RunID},
		{"outcome", r.Outcome.object()},
	}
}

func (o Outcome) object() object {
	return object{{"name", o.Name}, {"fault", o.Fault}, {"retry", o.Retry}, {"text", o.Text}}
}

func (e *EvalResult) object() object {
	o := object{
		{"start", stamp(e.Start)},
		{"end", stamp(e.End)},
		{"compilation", nil},
		{"run", nil},
		{"profile", nil},
	}
	if c := e.Compilation; c != nil {
		o[2].value = object{
			{"nvcc_found", c.NvccFound}, {"nvcc_version", c.NvccVersion}, {"success", c.Success}, {"command", c.Command},
			{"stdout", c.Stdout}, {"stderr", c.Stderr}, {"exit_code", c.ExitCode},
		}
	}
	if r := e.Run; r != nil {
		report := object{}
		for _, entry := range r.Result {
			report = append(report, pair{entry.Key, entry.Value})
		}
		o[3].value = object{
			{"success", r.Success}, {"passed", r.Passed}, {"command", r.Command},
			{"stdout", r.Stdout}, {"stderr", r.Stderr}, {"exit_code", r.ExitCode},
			{"duration", r.Duration}, {"result", report},
		}
	}
	if p := e.Profile; p != nil {
		o[4].value = object{{"profiler", p.Profiler}, {"trace", p.Trace}, {"download_url", p.DownloadURL}}
	}
	return o
}

func stamp(t time.Time) string { return t.UTC().Format(stampLayout) }

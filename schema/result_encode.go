package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

// stampLayout is what Python's datetime.fromisoformat reads in every version
// that Kernelbot runs on.
const stampLayout = "2006-01-02T15:04:05.000000-07:00"

// Encode returns result.json, indented, with a line end. Every string is
// passed through [Clean]. Kernelbot's keys come first, in its order; then
// run_id, outcome and the evidence.
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
	var flat, b bytes.Buffer
	more, err := r.Evidence.members()
	if err == nil {
		err = append(r.object(), more...).write(&flat)
	}
	if err == nil {
		err = json.Indent(&b, flat.Bytes(), "", "  ")
	}
	if err != nil {
		return nil, fmt.Errorf("encoding result: %w", err)
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// ordered is a JSON object in the order it is written down.
type ordered []pair

type pair struct {
	key   string
	value any // ordered or what encoding/json takes
}

func (o ordered) write(b *bytes.Buffer) error {
	b.WriteByte('{')
	for i, p := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeAny(b, p.key); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := writeAny(b, p.value); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func writeAny(b *bytes.Buffer, value any) error {
	switch v := value.(type) {
	case ordered:
		return v.write(b)
	case *node:
		b.WriteString(jsonNotation.text(v))
		return nil
	case string:
		value = text.Storable(v)
	}
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false) // "<" and "&" are common in compilers' output
	return enc.Encode(value)
}

func (r *Result) object() ordered {
	runs := ordered{}
	for i := range r.Runs {
		runs = append(runs, pair{r.Runs[i].Name, r.Runs[i].object()})
	}
	s := r.System
	o := ordered{
		{"success", r.Success},
		{"error", r.Error},
		{"system", ordered{
			{"gpu", s.GPU}, {"device_count", s.DeviceCount}, {"cpu", s.CPU}, {"runtime", s.Runtime},
			{"platform", s.Platform}, {"torch", s.Torch}, {"hostname", s.Hostname},
		}},
		{"runs", runs},
		{"run_id", r.RunID},
	}
	if r.Outcome != (Outcome{}) { // Kernelbot's own results have none
		o = append(o, pair{"outcome", r.Outcome.object()})
	}
	return o
}

func (o Outcome) object() ordered {
	return ordered{{"name", o.Name}, {"fault", o.Fault}, {"retry", o.Retry}, {"text", o.Text}, {"phase", o.Phase}}
}

func (e *EvalResult) object() ordered {
	o := ordered{
		{"start", stamp(e.Start)},
		{"end", stamp(e.End)},
		{"compilation", nil},
		{"run", nil},
		{"profile", nil},
	}
	if c := e.Compilation; c != nil {
		o[2].value = ordered{
			{"nvcc_found", c.NvccFound}, {"nvcc_version", c.NvccVersion}, {"success", c.Success}, {"command", c.Command},
			{"stdout", c.Stdout}, {"stderr", c.Stderr}, {"exit_code", c.ExitCode},
		}
	}
	if r := e.Run; r != nil {
		report := ordered{}
		for _, entry := range r.Result {
			report = append(report, pair{entry.Key, entry.Value})
		}
		o[3].value = ordered{
			{"success", r.Success}, {"passed", r.Passed}, {"command", r.Command},
			{"stdout", r.Stdout}, {"stderr", r.Stderr}, {"exit_code", r.ExitCode},
			{"duration", r.Duration}, {"result", report},
		}
	}
	if p := e.Profile; p != nil {
		o[4].value = ordered{{"profiler", p.Profiler}, {"trace", p.Trace}, {"download_url", p.DownloadURL}}
	}
	return o
}

func stamp(t time.Time) string { return t.UTC().Format(stampLayout) }

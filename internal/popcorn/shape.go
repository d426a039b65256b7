package popcorn

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// A shape reads an answer and notes where it is not what the client expects.
type shape struct {
	top    map[string]any
	faults []error
}

func newShape(v any) *shape {
	s := &shape{}
	top, is := v.(map[string]any)
	if !is {
		s.fault("the answer: got %T, want an object", v)
	}
	s.top = top
	return s
}

func (s *shape) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Errorf(format, args...))
}

func (s *shape) err() error { return errors.Join(s.faults...) }

func (s *shape) word(name, want string) {
	if got := s.text(s.top, name); got != want {
		s.fault("%s: got %q, want %q", name, got, want)
	}
}

func (s *shape) object(name string) map[string]any {
	o, is := s.top[name].(map[string]any)
	if !is {
		s.fault("%s: got %T, want an object", name, s.top[name])
	}
	return o
}

func (s *shape) list(in map[string]any, name string) (objects []map[string]any) {
	l, is := in[name].([]any)
	if !is {
		s.fault("%s: got %T, want a list", name, in[name])
	}
	for _, v := range l {
		o, is := v.(map[string]any)
		if !is {
			s.fault("%s: got a %T in the list, want objects", name, v)
			continue
		}
		objects = append(objects, o)
	}
	return objects
}

func (s *shape) texts(in map[string]any, name string) (texts []string) {
	l, is := in[name].([]any)
	if !is {
		s.fault("%s: got %T, want a list", name, in[name])
	}
	for _, v := range l {
		t, is := v.(string)
		if !is {
			s.fault("%s: got a %T in the list, want strings", name, v)
		}
		texts = append(texts, t)
	}
	return texts
}

func (s *shape) text(in map[string]any, name string) string {
	t, is := in[name].(string)
	if !is {
		s.fault("%s: got %T, want a string", name, in[name])
	}
	return t
}

func (s *shape) textOrNull(in map[string]any, name string) string {
	if v, there := in[name]; there && v == nil {
		return ""
	}
	return s.text(in, name)
}

func (s *shape) yes(in map[string]any, name string) bool {
	b, is := in[name].(bool)
	if !is {
		s.fault("%s: got %T, want true or false", name, in[name])
	}
	return b
}

func (s *shape) number(in map[string]any, name string) int64 {
	f, is := in[name].(float64)
	if !is || f != math.Trunc(f) {
		s.fault("%s: got %v, want a whole number", name, in[name])
	}
	return int64(f)
}

// time wants ISO 8601 with an offset, as Python writes it.
func (s *shape) time(in map[string]any, name string) string {
	t := s.text(in, name)
	if _, err := time.Parse("2006-01-02T15:04:05.999999-07:00", t); err != nil {
		s.fault("%s: got %q, want a time with +00:00", name, t)
	}
	return t
}

// score is a number, a string that holds one, or null.
func (s *shape) score(in map[string]any) *float64 {
	v, there := in["score"]
	if !there {
		s.fault("score: it is missing")
	}
	switch v := v.(type) {
	case nil:
		return nil
	case float64:
		return &v
	case string:
		if f, err := strconv.ParseFloat(v, 64); err == nil {
			return &f
		}
	}
	s.fault("score: got %v, want a number, a string with one, or null", v)
	return nil
}

func (s *shape) queue(name string) *Queue {
	v, there := s.top[name]
	if !there {
		s.fault("%s: it is missing", name)
	}
	if v == nil {
		return nil
	}
	o := s.object(name)
	q := &Queue{Runner: s.text(o, "runner"), GPU: s.text(o, "gpu")}
	for _, field := range []string{"queued_jobs", "running_jobs", "available_runners"} {
		if v, there := o[field]; !there {
			s.fault("%s.%s: it is missing", name, field)
		} else if v != nil {
			if n := s.number(o, field); field == "queued_jobs" {
				q.Jobs = &n
			}
		}
	}
	if status := s.text(o, "status"); status != "available" && status != "unavailable" {
		s.fault("%s.status: got %q", name, status)
	}
	s.textOrNull(o, "error")
	return q
}

// members of the objects in a result, which Kernelbot's readers all want.
var members = map[string][]string{
	"compilation": {"nvcc_found", "nvcc_version", "success", "command", "stdout", "stderr", "exit_code"},
	"run":         {"success", "passed", "command", "stdout", "stderr", "exit_code", "duration", "result"},
	"profile":     {"profiler", "trace", "download_url"},
}

// fullResult wants what Kernelbot calls FullResult.
func (s *shape) fullResult(r map[string]any) {
	s.yes(r, "success")
	s.text(r, "error")
	if _, is := r["system"].(map[string]any); !is {
		s.fault("system: got %T, want an object", r["system"])
	}
	runs, is := r["runs"].(map[string]any)
	if !is {
		s.fault("runs: got %T, want an object", r["runs"])
	}
	for name, v := range runs {
		run, is := v.(map[string]any)
		if !is {
			s.fault("runs.%s: got %T, want an object", name, v)
			continue
		}
		s.text(run, "start")
		s.text(run, "end")
		for part, wanted := range members {
			v, there := run[part]
			o, is := v.(map[string]any)
			if !there || v != nil && !is {
				s.fault("runs.%s.%s: got %v, want an object or null", name, part, v)
			}
			if !is {
				continue
			}
			for _, m := range wanted {
				if _, there := o[m]; !there {
					s.fault("runs.%s.%s.%s: it is missing", name, part, m)
				}
			}
			if len(o) != len(wanted) {
				s.fault("runs.%s.%s: got %d members, want %d, as one more breaks Kernelbot's reader", name, part, len(o), len(wanted))
			}
		}
	}
}

package device

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// failing is an nvidia-smi that is killed at the first n questions of a kind.
func failing(t *testing.T, kind, n string, text string) (script string, asked func() int) {
	t.Helper()
	count := t.TempDir() + "/count"
	first := "case $1 in " + kind + ") echo >>" + count + "; test $(wc -l <" + count + ") -gt " + n + " || kill -KILL $$;; esac\n"
	return first + text, func() int {
		data, _ := os.ReadFile(count)
		return len(data)
	}
}

// A tool that does not answer is asked again, and believed then.
func TestProbeIsAskedAgain(t *testing.T) {
	busy := answers(goodGPU, "GPU-aa, 7, trainer, 1", "", "0")
	for _, kind := range []string{"--query-gpu=index*", "--query-compute-apps*", "--query-remapped-rows*", "--query-gpu=uuid*"} {
		script, asked := failing(t, kind, "2", busy)
		m := smiMachine(t, script)
		w := Probe(context.Background(), m)
		if got, text := (Requirements{Vendor: NVIDIA}).Check(w.Report(), w.Visible()); got != schema.OutcomeGPUBusy || asked() != 3 {
			t.Errorf("%s, killed twice: %q %q, asked %d times, want a busy GPU and 3", kind, got, text, asked())
		}
		w.Close()
	}
}

// One that never answers is no free machine, and no machine without GPUs either:
// nobody knows, whether or not a driver can be seen.
func TestProbeWithoutAnswerIsRefused(t *testing.T) {
	for _, kind := range []string{"--query-gpu=index*", "--query-compute-apps*", "--query-remapped-rows*", "--query-gpu=uuid*"} {
		script, asked := failing(t, kind, "1000", answers(goodGPU, "", "", "0"))
		for _, root := range []string{t.TempDir(), nvidiaRoot(t)} {
			m := smiMachine(t, script)
			m.Root = root
			before := asked()
			w := Probe(context.Background(), m)
			for _, vendor := range []string{"", NVIDIA} {
				if got, text := (Requirements{Vendor: vendor}).Check(w.Report(), w.Visible()); got != schema.OutcomeGPUUnhealthy || !strings.Contains(text, "asked 3 times") {
					t.Errorf("%s, %q required: %q %q, want an unhealthy GPU", kind, vendor, got, text)
				}
			}
			if got, text := (Requirements{Vendor: None}).Check(w.Report(), w.Visible()); got != "" {
				t.Errorf("%s, no GPU needed: %q %q", kind, got, text)
			}
			if got := asked() - before; got != 3 {
				t.Errorf("%s: asked %d times, want 3", kind, got)
			}
			w.Close()
		}
	}
}

// Settling that gets no answer leaves a busy device busy.
func TestSettleWithoutAnswer(t *testing.T) {
	script, asked := counted(t, answers(goodGPU, "GPU-aa, 7, trainer, 1", "", "0"))
	m := smiMachine(t, strings.Replace(script, "# counted", "test $n -le 1 || kill -KILL $$", 1))
	m.Settle = time.Minute
	w := Probe(context.Background(), m)
	defer w.Close()
	w.Settle(context.Background())
	if got, text := (Requirements{}).Check(w.Report(), w.Visible()); got != schema.OutcomeGPUBusy || asked() != 4 {
		t.Errorf("Check: %q %q, asked %d times", got, text, asked())
	}
}

// The last question decides whether somebody else was on the device: without an
// answer it may be so.
func TestAfterWithoutAnswer(t *testing.T) {
	for _, tt := range []struct {
		name, env, vendor string
		want              string
	}{
		{"a device in use", "", NVIDIA, "the devices could not be asked who else used them: nvidia-smi: signal: killed"},
		{"none that the job sees", "CUDA_VISIBLE_DEVICES=", NVIDIA, ""},
		{"none needed", "", None, ""},
	} {
		script, _ := counted(t, answers(goodGPU, "", "", "0"))
		m := smiMachine(t, strings.Replace(script, "# counted", "test $n -le 1 || kill -KILL $$", 1))
		m.Environ, m.Vendor = append(m.Environ, tt.env), tt.vendor
		w := Probe(context.Background(), m)
		got := strings.Join(w.After(context.Background()), "\n")
		if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s: After = %q, want %q", tt.name, got, tt.want)
		}
		w.Close()
	}
	// A context that is over ends the asking.
	m := smiMachine(t, answers(goodGPU, "", "", "0"))
	w := Probe(context.Background(), m)
	defer w.Close()
	over, stop := context.WithCancelCause(context.Background())
	stop(errors.New("enough"))
	if got := w.After(over); len(got) != 1 || !strings.HasSuffix(got[0], "enough") {
		t.Errorf("After with no time: %q", got)
	}
}

// A device that goes while it is used says so.
func TestAfterDeviceIsGone(t *testing.T) {
	for last, want := range map[string]string{
		otherGPU: "device 0 is not listed any more",
		strings.Replace(goodGPU, "NVIDIA H100", "[GPU is lost]", 1): "device 0 does not work: GPU is lost, after the job",
	} {
		script, _ := counted(t, answers(goodGPU, "", "", "0"))
		count := t.TempDir() + "/gpus"
		script = strings.Replace(script, "--query-gpu=*)\n", "--query-gpu=index*)\necho >>"+count+"; test $(wc -l <"+count+") -le 1 || { echo '"+last+"'; exit 0; }\n", 1)
		m := smiMachine(t, script)
		m.Settle = time.Millisecond
		w := Probe(context.Background(), m)
		if got := w.After(context.Background()); !slices.Equal(got, []string{want}) {
			t.Errorf("After = %q, want %q; %+v", got, want, w.Report())
		}
		w.Close()
	}
}

// How often and how long a question is asked.
func TestInsist(t *testing.T) {
	none := &noAnswer{errors.New("nothing")}
	other := errors.New("exit status 9")
	for _, tt := range []struct {
		name    string
		answers []error
		takes   bool // all of its limit each time
		limits  []time.Duration
		want    string
	}{
		{"at once", []error{nil}, false, []time.Duration{1}, ""},
		{"another fault", []error{other}, false, []time.Duration{1}, "exit status 9"},
		{"second time", []error{none, nil}, false, []time.Duration{1, 3}, ""},
		{"a fault the second time", []error{none, other}, false, []time.Duration{1, 3}, "exit status 9"},
		{"never, at once", []error{none, none, none}, false, []time.Duration{1, 3, 3}, "nothing, asked 3 times"},
		{"never, and slow", []error{none, none}, true, []time.Duration{1, 2}, "nothing, asked 2 times"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit = 100 * time.Hour // no machine is that slow
				var limits []time.Duration
				_, err := insist(context.Background(), limit, func(l time.Duration) (any, error) {
					limits = append(limits, l/limit)
					if tt.takes {
						time.Sleep(l)
					}
					return nil, tt.answers[len(limits)-1]
				})
				said := ""
				if err != nil {
					said = err.Error()
				}
				if said != tt.want || !slices.Equal(limits, tt.limits) {
					t.Errorf("insist: %q, limits %v, want %q, %v", said, limits, tt.want, tt.limits)
				}
			})
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	n := 0
	if _, err := insist(ctx, time.Hour, func(time.Duration) (any, error) { n++; stop(); return nil, none }); err != none || n != 1 {
		t.Errorf("insist went on after the end: %v, %d times", err, n)
	}
}

// The answer to a question that was given up is not taken for the next one's.
func TestLateAnswer(t *testing.T) {
	in, out := io.Pipe()
	go io.Copy(io.Discard, in) // ends with the test
	defer out.Close()
	p := &prober{stdin: out, answers: make(chan answer, 4)}
	if _, err := p.report(t.Context(), time.Nanosecond); !unanswered(err) {
		t.Fatalf("Report without an answer: %v", err)
	}
	older, newer := &schema.DeviceReport{Driver: "older"}, &schema.DeviceReport{Driver: "newer"}
	p.answers <- answer{Report: older}
	p.answers <- answer{Report: newer}
	if got, err := p.report(t.Context(), time.Hour); got != newer || err != nil {
		t.Errorf("Report = %+v, %v, want the newer", got, err)
	}
}

// nvidia-smi tells architecture and parts when it is asked apart; an older one
// fails that question alone, and then the architecture is not known.
func TestSMIKinds(t *testing.T) {
	hopper := schema.DeviceType{Names: []string{"NVIDIA H100", "NVIDIA H100 *"}, Arch: "90", MemoryGiB: 75}
	for answer, want := range map[string]struct {
		arch, outcome, text string
	}{
		"GPU-aa, 9.0, Disabled":                                {"90", "", ""},
		"GPU-aa, 9.0, [N/A]":                                   {"90", "", ""},
		"GPU-aa, 10.0, Disabled":                               {"100", schema.OutcomeWrongMachine, `device 0 (GPU-aa) is not of GPU type H100_BK: its architecture is "100", want "90"`},
		"GPU-aa, 9.0, Enabled":                                 {"90", schema.OutcomeWrongMachine, "device 0 (GPU-aa) is not of GPU type H100_BK: it is split into parts (MIG)"},
		"GPU-aa, [N/A], [N/A]":                                 {"", schema.OutcomeWrongMachine, `device 0 (GPU-aa) is not of GPU type H100_BK: it does not tell its architecture, want "90"`},
		"GPU-bb, 9.0, Disabled":                                {"", schema.OutcomeWrongMachine, `device 0 (GPU-aa) is not of GPU type H100_BK: it does not tell its architecture, want "90"`},
		"Field \"compute_cap\" is not a valid field to query.": {"", schema.OutcomeWrongMachine, `device 0 (GPU-aa) is not of GPU type H100_BK: it does not tell its architecture, want "90"`},
	} {
		text := strings.Replace(answers(goodGPU, "", "", "0"), "case $1 in\n", "case $1 in\n--query-gpu=uuid*) echo '"+answer+"'; exit 0;;\n", 1)
		if want.arch == "" {
			text = strings.Replace(text, "exit 0;;", "exit 2;;", 1)
		}
		w := Probe(context.Background(), smiMachine(t, text))
		got, said := Requirements{Vendor: NVIDIA, Type: hopper, GPUType: "H100_BK"}.Check(w.Report(), w.Visible())
		if d := w.Report().Devices[0]; got != want.outcome || said != want.text || d.Arch != want.arch {
			t.Errorf("%s: %q %q, architecture %q, want %+v", answer, got, said, d.Arch, want)
		}
		w.Close()
	}
}

// Every device that the job sees is looked at, and no other.
func TestEveryVisibleDeviceIsChecked(t *testing.T) {
	w := Probe(context.Background(), smiMachine(t, answers(goodGPU+"\n"+field("name", "NVIDIA L40S"), "", "", "0")))
	defer w.Close()
	q := Requirements{Vendor: NVIDIA, Type: schema.DeviceType{Names: []string{"NVIDIA H100"}}, GPUType: "H100_BK"}
	for env, want := range map[string]string{
		"": schema.OutcomeWrongMachine, "CUDA_VISIBLE_DEVICES=0": "", "CUDA_VISIBLE_DEVICES=1": schema.OutcomeWrongMachine,
	} {
		if got, text := q.Check(w.Report(), Visible(w.Report(), []string{env})); got != want {
			t.Errorf("%q: %q %q, want %q", env, got, text, want)
		}
	}
}

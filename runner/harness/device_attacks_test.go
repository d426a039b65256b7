package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// Programs of the corpus whose tensors or arrays lie on the stand-in for a GPU. None
// gains time there either.
func TestSlowAttacksOnDevices(t *testing.T) {
	testenv.NeedSlow(t)
	const takes = 3e6 // nanoseconds of each program's work
	file := func(path ...string) string { return fileText(t, path...) }
	for _, tt := range []struct{ name, outcome string }{
		{"torch_large_storage", schema.OutcomeForged},
		{"torch_places_seen", schema.OutcomePassed},
		{"torch_early", schema.OutcomePassed},
		{"headless_early", schema.OutcomePassed},
		{"strict_recognized", schema.OutcomePassed},
		{"places_cuda", schema.OutcomePassed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var judge func() (string, string, *Run)
			if strings.HasSuffix(tt.name, "_cuda") {
				var task []schema.File
				for _, name := range []string{plan.TaskHeader, plan.ReferenceCUDA} {
					task = append(task, schema.File{Name: name, Text: file("../../examples/vectoradd_cu", name)})
				}
				p := nativePayload(3000)
				p.Tests[0] = append(p.Tests[0], ints("range", 1)...)
				s, err := openNative(t, p, standInDevice, task...)
				must(t, err)
				text := strings.Replace(file(corpus, "programs", tt.name+".cu"), "#include \"cuda.h\"\n", file(corpus, "lib/cuda.h"), 1)
				library := compiled(t, plan.BuildSubmission, "", append(task, schema.File{Name: plan.SubmissionCUDA, Text: text}))
				judge = func() (string, string, *Run) { return judgedLibrary(t, s, schema.ModeBenchmark, library) }
			} else {
				p := devicePayload(1_000_000)
				p.Sources = schema.Files{{Name: plan.SubmissionFile}}
				for _, name := range []string{taskFile, utilsFile, referenceFile} {
					p.Sources = append(p.Sources, schema.File{Name: name, Text: file(corpus, "usual/torch_task", name)})
				}
				s, err := openOnDevice(t, "", p, nil)
				must(t, err)
				if !s.onDevice {
					t.Fatal("the inputs are not on the device")
				}
				text := strings.Replace(file(corpus, "usual/programs", tt.name+".py"), "from channel import *\n", file(corpus, "usual/lib/channel.py"), 1)
				judge = func() (string, string, *Run) { return judged(t, s, schema.ModeBenchmark, text) }
			}
			outcome, words, run := judge()
			for n := 0; n < 2 && outcome == schema.OutcomeAmbiguous; n++ {
				outcome, words, run = judge()
			}
			switch {
			case outcome == schema.OutcomeAmbiguous:
				t.Skipf("NOT RUN: the machine is too busy to measure: %s", words)
			case outcome != tt.outcome:
				t.Fatalf("%s: %s, want %s", outcome, words, tt.outcome)
			case outcome != schema.OutcomePassed:
				return
			case len(run.Measurements) != 1:
				t.Fatalf("measurements %+v, want one", run.Measurements)
			}
			m := run.Measurements[0]
			figure := (m.Interval[0] + m.Interval[1]) / 2
			t.Logf("%.3f ms of %g ms, %d calls, strict %.3f ms", figure/1e6, takes/1e6, len(m.Samples), *m.Strict/1e6)
			if takes-figure > takes/100+min(m.Resolution, 500) {
				t.Errorf("the figure is %.0f ns, the work takes %.0f", figure, takes)
			}
		})
	}
}

const corpus = "../testdata/attacks"

func fileText(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	must(t, err)
	return string(data)
}

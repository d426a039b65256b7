package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local/engine"
)

// executed is a line of strace about a program that is started. Its end is in another
// line if something else happened meanwhile.
var executed = regexp.MustCompile(`(?m)execve\("([^"]+)", \[(.*?)\].*(?:\) = 0|<unfinished \.\.\.>)$`)

// Whatever a pipeline's author, a committer or the creator of a build writes, a job
// on a slot with containers starts the same programs on the machine: the hook's one
// line and kbnode. strace learns of every execve below the agent from the kernel.
func TestHostileValues(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN: starts agents")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("NOT RUN: there is no strace on PATH")
	}
	if out, err := exec.Command(strace, "-f", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: strace may not trace here: %v: %s", err, out)
	}
	t.Parallel()
	r := &gateRig{strace: strace}
	r.init(t)
	evil := r.path("evil")
	values := append(testenv.HostileValues(evil), strings.Repeat("A", 60_000))
	want := r.programs(t, "plain", dockerStep(""), engine.NewBuild{})
	check := func(slug, step string, build engine.NewBuild) {
		t.Helper()
		if got := r.programs(t, slug, step, build); !slices.Equal(got, want) {
			t.Errorf("%s: the job started\n%s\nwant\n%s", slug, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for i, value := range values {
		several := "first\n" + value + "\nlast"
		for name, build := range map[string]engine.NewBuild{
			"message": {Message: several},
			"branch":  {Branch: value, Commit: value},
			"author":  {Author: engine.Person{Name: value, Email: value}, Creator: engine.Person{Name: value, Email: value}},
			"payload": {Env: map[string]string{"KERNELBOT_PAYLOAD": several, "SUBMISSION_PAYLOAD": several, "KERNELBOT_GPU": value, "KERNELBOT_X": value}},
		} {
			check(fmt.Sprintf("%s-%d", name, i), dockerStep(""), build)
		}
		quoted := func(value string) string { return strings.ReplaceAll(strconv.QuoteToASCII(value), "$", "$$") }
		step := strings.Replace(dockerStep(""), "command: exec kbrun evaluate", "label: "+quoted(value)+"\n    command: "+quoted("true # "+several), 1)
		check(fmt.Sprintf("step-%d", i), step, engine.NewBuild{})
	}
	if _, err := os.Stat(evil); err == nil {
		t.Error("a hostile value was executed")
	}
	for i, begin := range []string{"pre-bootstrap ", "kbnode ", "kbnode "} {
		if len(want) != 3 || !strings.HasPrefix(want[i], begin) {
			t.Errorf("a job starts\n%s\nwant the hook, kbnode gate and kbnode bootstrap only", strings.Join(want, "\n"))
			break
		}
	}
}

// programs runs a job that must pass, and returns the programs
// that it started on the machine, with the names of their arguments.
func (r *gateRig) programs(t *testing.T, slug, step string, build engine.NewBuild) []string {
	t.Helper()
	trace := r.path("strace.gpu0")
	before, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	build.Env = maps.Clone(build.Env)
	if _, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: slug, Configuration: "steps:\n" + step, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	j, log := r.run(slug, build)
	if exitStatus(j) != 0 || !strings.Contains(log, "container of ") {
		t.Fatalf("%s: exit status %d:\n%.2000s", slug, exitStatus(j), log)
	}
	after, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range executed.FindAllStringSubmatch(string(after[len(before):]), -1) {
		args := regexp.MustCompile(`[0-9]{5,}`).ReplaceAllString(m[2], "N")
		all = append(all, filepath.Base(m[1])+" "+args)
	}
	if len(all) == 0 {
		t.Fatalf("%s: strace saw no program", slug)
	}
	return all
}

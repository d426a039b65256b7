// Package runner judges one submission: a payload in, a result out. It writes
// the files, builds or warms up, runs the tester once per phase, reads its
// report and says how it ended, under Kernelbot's rules. It knows nothing of
// Buildkite, of scores, or of who made the payload.
//
// What the submission runs is not trusted. It gets an environment made from an
// allow-list, a fresh directory for every phase, and harness files that are
// written anew after its own code ran in the warm-up. Whatever it leaves
// running is killed before its output is judged, and a report that says pass
// must answer what was asked, agree with itself and fit the clock. See
// docs/attacks.md.
//
// Before anything runs, the machine's accelerators are looked at (package
// device): a job that must not run on them ends as the machine's fault. They
// are watched while a benchmark is timed, and what disturbed it is said beside
// the verdict, as is everything else in schema.Evidence; see docs/evidence.md.
//
// Linux only. While [Evaluate] runs, the calling process must have no children
// of its own: descendants are found, killed and reaped as "every child there
// is", which is the one test that a process cannot slip through.
//
// Source of the rules: gpu-mode/kernelbot, src/libkernelbot/run_eval.py.
package runner

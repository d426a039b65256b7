// Package runner judges one submission: a payload in, a result out. It knows
// nothing of Buildkite, of scores, or of who made the payload.
//
// A payload goes through it once, from [Evaluate] in evaluate.go on:
//
//   - the machine is made ready: accelerators (devices.go, package device), the
//     sandbox (sandbox.go, package sandbox), the facts that a plan needs
//     (facts.go);
//   - plan: package plan turns payload and facts into phases, each with its
//     files, commands, limits and environment. Pure;
//   - run: run.go does what is planned, command by command (process.go, with
//     channel.go, drain.go, capture.go and descendants.go), and keeps what it
//     saw;
//   - judge: package judge turns plan and what was seen into the outcome and
//     Kernelbot's keys. Pure;
//   - result: result.go enters both in the result, trace.go a profile.
//
// What the submission runs is not trusted. It gets an environment made from an
// allow-list, fresh directories for every phase, and a harness whose files are
// written anew after its own code ran in the warm-up. Whatever it leaves
// running is killed before its output is judged. See docs/attacks.md.
//
// A job that must not run on the machine's accelerators ends as the machine's
// fault before anything runs. They are watched while a benchmark is timed, and
// what disturbed it stands beside the verdict, as does everything else in
// schema.Evidence; see docs/evidence.md.
//
// Linux only. While [Evaluate] runs, the calling process must have no children
// of its own: descendants are found, killed and reaped as "every child there
// is", which is the one test that a process cannot slip through.
//
// Source of the rules: gpu-mode/kernelbot, src/libkernelbot/run_eval.py.
package runner

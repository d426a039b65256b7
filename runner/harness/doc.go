// Package harness is kbrun's own harness: it judges a submission that neither
// checks nor times itself.
//
// Three processes take part, each a user of its own where that can be had:
//
//   - kbrun (this package) decides what is called when, and holds the clock: it
//     releases a call by a word in a page that it shares with the worker, and
//     reads the clock when the worker answers with another. It looks through
//     everything that the worker says before anybody else sees it.
//   - The judge (judge.py), in a sandbox of its own, holds the seed and the
//     task's reference. It makes inputs, copies them into shared memory once the
//     worker waits, and checks private copies of the outputs.
//   - The worker (worker.py), in another sandbox, has task.py, utils.py and the
//     submission. It sees inputs and nothing else.
//
// For tasks in C++ judge and worker are programs (native/judge.cu and
// native/launcher.cu), compiled apart; the worker opens a library with the
// submission.
//
// Arrays lie in sealed anonymous files, the arenas: one for inputs, one for
// outputs. Tensors on a GPU lie in two more, which the judge allocates there and
// the worker opens (device.go). Everything else travels as bounded binary
// messages (tree.go).
//
// Judge and worker import the task's heavy modules once for all phases: each
// phase's worker is forked from a process that has imported them and has never
// seen a submission.
//
// It does not know payloads' other roads, devices, or how results are written.
//
// Turned down: a clock in Python (1 to 3 µs off, and blind to what is written
// after "done"); reading outputs from the worker's memory (a microsecond for
// each place that is probed); taking the time of copying an output off the
// figure (whoever skips the copy would gain it); one memory file per call
// (37 ms for 100 MB).
package harness

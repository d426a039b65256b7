// Package schema holds the wire formats between a launcher, the runner and
// whoever stores results: the payload, the text of test cases, result.json and
// the names of endings. It knows the formats and nothing of who sends them,
// when, or through what.
//
// The formats are Kernelbot's. Where this package is stricter or more lenient
// than Kernelbot's Python, the comment of the function says so.
//
// Source: gpu-mode/kernelbot, src/libkernelbot/task.py, run_eval.py and
// launchers/.
package schema

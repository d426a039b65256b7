// Package schema holds the wire formats between a launcher, the runner and
// whoever stores results:
//
//   - the payload of a build (Payload, [DecodePayload]) and the variables that
//     carry it ([FindPayload])
//   - the text of test cases ([CasesText])
//   - result.json (Result, [DecodeResult]), its outcomes ([Outcomes]) and its
//     evidence (Evidence)
//   - what all programs must agree on: names of variables, exit statuses and
//     limits (wire.go)
//
// It knows the formats, and does not know who sends them, when, or through
// what.
//
// The formats are Kernelbot's. Where this package is stricter or more lenient
// than Kernelbot's Python, the comment of the function says so.
//
// Source: gpu-mode/kernelbot, src/libkernelbot/task.py, run_eval.py and
// launchers/.
package schema

// Package launcher turns a submission into a Buildkite build and comes back
// with its result: create, wait, fetch, score.
//
// It is the only importer of go-buildkite v3, which has no contexts, no
// timeouts and retries 429 blindly; [Client] puts all three underneath it. The
// token goes to the host of the base URL and to no other.
//
// The launcher knows no GPU types, reads no environment and prints nothing. It
// never decides a verdict: that is in result.json, whatever colour the build
// has. Payloads appear in no error, event or log line of it.
package launcher

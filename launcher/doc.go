// Package launcher turns a submission into a Buildkite build and comes back
// with its result: create the build, wait for its end, fetch the result of
// this run. [Client.Submit] does all of it for a person: what it gives up, it
// cancels. A service takes the parts, under run ids that it has stored before:
// [Client.Create] makes a run's build or finds the one there is, [Client.Adopt]
// finds it after a restart, [Client.Collect] waits and fetches, and leaves the
// build alone when its context ends; only [Client.Cancel] cancels.
//
// Any number of calls may run at once, and share one quota of requests and one
// polling loop. [Client.Queues] and [Client.Agents] list machines, which package
// fleet compares with what vendors promise.
//
// What fails is asked for again, with pauses, until its caller's time is over;
// a refusal (4xx) is final. A create that may have made a build is looked up by
// its run id before it is repeated.
//
// It is the only importer of go-buildkite v3, which has no contexts, no
// timeouts, and retries 429 blindly; [Client] puts all three underneath it. The
// token goes to the host of the base URL and to no other.
//
// It knows no GPU types, reads no environment and prints nothing, and it never
// decides a verdict: that is in result.json, whatever colour the build has.
// Payloads appear in none of its errors, events and log lines.
//
// Its files form layers, and calls go down only: values; the limits and what is
// known of builds and of a run; one request; what the API has; builds; the shared
// polling; one run from its creation to its result. layers_test.go lists them.
package launcher

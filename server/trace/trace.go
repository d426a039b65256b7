// Package trace says how long requests, submissions and runs take, as spans of
// OpenTelemetry, in a program that is built with the tag otel. Without the tag it
// does nothing and brings no library along.
//
// It knows what its callers tell it: a span never has a submission's text, a token,
// a seed or the name of a user, and of an error its type alone.
package trace

import (
	"context"
	"strconv"
	"time"
)

// An Attr is one fact about a span.
type Attr struct{ Key, Value string }

// Submission names the submission that a span is about.
func Submission(id int64) Attr { return Attr{"kbserve.submission", strconv.FormatInt(id, 10)} }

// Run names the planned run that a span is about.
func Run(id string) Attr { return Attr{"kbserve.run", id} }

// Board, GPU and Mode say what a span's submission is for.
func Board(name string) Attr { return Attr{"kbserve.board", name} }
func GPU(name string) Attr   { return Attr{"kbserve.gpu", name} }
func Mode(name string) Attr  { return Attr{"kbserve.mode", name} }

// Start begins a span below that of ctx. end is called once; what it is told is
// added.
func Start(ctx context.Context, name string, attrs ...Attr) (inside context.Context, end func(error, ...Attr)) {
	return StartAt(ctx, time.Now(), name, attrs...)
}

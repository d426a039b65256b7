package store

import "time"

// Why says what a [Refusal] is about, for whoever turns it into a status.
type Why int

const (
	Invalid      Why = iota // the request itself cannot be used
	UnknownBoard            //
	UnknownGPU              // not one of the board's
	UnknownUser             //
	Banned                  // the user
	NotInvited              // to a closed board
	AfterDeadline
	OverLimit     // RetryAfter says when it may be tried again
	Finished      // what was to be stopped
	HasCLIID      // and nobody said that it may be replaced
	UnknownInvite //
	InviteTaken   // by somebody else
)

// A Refusal is a request that was understood and is not done. Nothing was stored.
type Refusal struct {
	Why        Why
	Text       string        // one line for the user
	RetryAfter time.Duration // of OverLimit
}

func (r *Refusal) Error() string { return r.Text }

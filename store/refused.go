package store

import "time"

// Why says what a [Refused] is about, for whoever turns it into a status.
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

// A Refused is a request that was understood and is not done. Nothing was stored.
type Refused struct {
	Why        Why
	Text       string        // one line for the user
	RetryAfter time.Duration // of OverLimit
}

func (r *Refused) Error() string { return r.Text }

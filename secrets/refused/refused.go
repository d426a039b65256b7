// Package refused names why a secret is not handed out. It stands apart from
// package secrets for programs that ask and open nothing, as kbrun does: they
// link no cryptography.
package refused

// A Reason says why a value is not handed out.
type Reason string

// Reasons, in the order in which they are looked for.
const (
	Malformed         Reason = "malformed"         // no envelope of this form
	TooLarge          Reason = "too-large"         // beyond the limits of values and envelopes
	UnknownRecipient  Reason = "unknown-recipient" // sealed for other keys
	Altered           Reason = "altered"           // not as it was sealed
	Renamed           Reason = "renamed"           // sealed under another name
	NotYetValid       Reason = "not-yet-valid"
	Expired           Reason = "expired"
	Unsigned          Reason = "unsigned" // no signature, or of nobody who is trusted
	WrongOrganization Reason = "wrong-organization"
	WrongPipeline     Reason = "wrong-pipeline"
	WrongQueue        Reason = "wrong-queue"
	WrongStep         Reason = "wrong-step"
	WrongRef          Reason = "wrong-ref"
	WrongSource       Reason = "wrong-source"
	WrongRun          Reason = "wrong-run" // a payload of another run

	// A broker's own.
	Unproved Reason = "unproved" // the job does not say who it is, or is not believed
	Busy     Reason = "busy"     // the broker cannot find out now; ask again
)

// A Refusal is a value that is not handed out. Its text names no value.
type Refusal struct {
	Name   string // of the secret, "" when it is not known
	Reason Reason
	Detail string // what was found and what is wanted
}

func (e *Refusal) Error() string {
	s := string(e.Reason)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Name != "" {
		s = "secret " + e.Name + ": " + s
	}
	return s
}

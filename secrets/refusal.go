package secrets

import "fmt"

// A Reason says why a value is not handed out.
type Reason string

// Reasons, in the order in which they are looked for.
const (
	Malformed         Reason = "malformed"         // no envelope of this form
	TooLarge          Reason = "too-large"         // beyond MaxValue or MaxEnvelope
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
)

// A Refusal is a value that is not handed out. Its text names no value.
type Refusal struct {
	Name   string // of the secret, "" when it is not known
	Reason Reason
	Detail string // what was found and what is wanted
}

func (r *Refusal) Error() string {
	s := string(r.Reason)
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	if r.Name != "" {
		s = "secret " + r.Name + ": " + s
	}
	return s
}

func refusal(name string, reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Name: name, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

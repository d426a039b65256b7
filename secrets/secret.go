package secrets

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets/refused"
)

// Limits.
const (
	MaxValue    = 32 << 10  // bytes of a value: what Buildkite takes as a secret
	maxEnvelope = 127 << 10 // bytes of an envelope's text: Linux takes 128 KiB as one variable, with its name
	maxBindings = 64        // entries of each list of a [Binding]
)

// maxRun bounds a run's id, as kbrun does.
const maxRun = 200

// DefaultLife is how long a value is valid when its writer names no day.
const DefaultLife = 365 * 24 * time.Hour

// A Secret is a value and what it is bound to.
type Secret struct {
	Name  string // as [CheckName] wants it
	Value []byte // any bytes, 1 to MaxValue; of one bound to a run, 1 to maxPayload
	Binding

	NotBefore time.Time // zero: from Issued on
	Expires   time.Time // required
	Issued    time.Time // when it was sealed
	KeyID     string    // which set of recipients it was sealed for, [RecipientSet.KeyID]
	By        string    // who sealed it, in their own words; at most 128 printable characters

	// Signature is Ed25519's over the rest, nil when nobody signed. An envelope
	// alone proves that it is whole, not who made it.
	Signature []byte
}

// A Binding names who may have a value. An empty list of Queues, Steps, Refs or
// Sources admits every one; each of the other fields must match.
type Binding struct {
	Organization string   // its UUID
	Pipelines    []string // their UUIDs, at least one
	Queues       []string // UUIDs of cluster queues
	Steps        []string // keys
	Refs         []string // whole, "refs/heads/main"
	Sources      []string // of builds: api, schedule, trigger_job, ui, webhook

	// Run is the id of the one run whose payload the value is, "" of all that is
	// no payload. No token names it: the program that asks does.
	Run string
}

// Claims are what is known of a job, by somebody who is believed: Buildkite's
// OIDC token, or a node's own policy.
type Claims struct {
	Organization, Pipeline, Queue string // UUIDs
	Step, Ref, Source             string

	Run string // the job's own word: which run it asks for
}

var (
	uuidPattern  = text.Pattern(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	keyIDPattern = text.Pattern(`^[a-z0-9][a-z0-9._+-]{0,126}$`)
)

// IsUUID reports whether s is a UUID as Buildkite writes it, in small letters.
func IsUUID(s string) bool { return uuidPattern().MatchString(s) }

// sources are where builds come from, as Buildkite names them.
var sources = []string{"api", "frontend", "schedule", "trigger_job", "ui", "webhook"}

// Validate returns every fault, joined; none quotes the value.
func (s *Secret) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if err := CheckName(s.Name); err != nil {
		faults = append(faults, err)
	}
	most := MaxValue
	if s.Run != "" {
		most = maxPayload
	}
	if n := len(s.Value); n == 0 || n > most {
		fault("value: got %d bytes, want 1 to %d", n, most)
	}
	switch {
	case (s.Name == payloadName) != (s.Run != ""):
		fault("run: got %s under the name %s, want a run's id under the name %s and no other", text.Quote(s.Run), s.Name, payloadName)
	case s.Run != "" && s.Run != text.Line(s.Run, maxRun):
		fault("run: got %s, want at most %d printable characters", text.Quote(s.Run), maxRun)
	}
	if !IsUUID(s.Organization) {
		fault("organization: got %s, want its UUID in small letters", text.Quote(s.Organization))
	}
	if len(s.Pipelines) == 0 {
		fault("pipelines: got none, want the UUID of at least one")
	}
	for _, list := range []struct {
		name, want string
		values     []string
		ok         func(string) bool
	}{
		{"pipelines", "UUIDs in small letters: a slug can be given to another pipeline", s.Pipelines, IsUUID},
		{"queues", "UUIDs in small letters", s.Queues, IsUUID},
		{"steps", "keys of steps", s.Steps, printable},
		{"refs", `whole refs, "refs/heads/main"`, s.Refs, func(r string) bool { return strings.HasPrefix(r, "refs/") && printable(r) }},
		{"sources", strings.Join(sources, ", "), s.Sources, func(v string) bool { return slices.Contains(sources, v) }},
	} {
		if len(list.values) > maxBindings {
			fault("%s: got %d, want at most %d", list.name, len(list.values), maxBindings)
		}
		for _, v := range list.values {
			if !list.ok(v) {
				fault("%s: got %s, want %s", list.name, text.Quote(v), list.want)
			}
		}
	}
	switch {
	case s.Issued.IsZero():
		fault("issued: got no time")
	case s.Expires.IsZero():
		fault("expires: got no time")
	case !s.Expires.After(s.Issued):
		fault("expires: got %s, want a time after %s", day(s.Expires), day(s.Issued))
	case !s.NotBefore.IsZero() && !s.Expires.After(s.NotBefore):
		fault("expires: got %s, want a time after it begins, %s", day(s.Expires), day(s.NotBefore))
	}
	if !keyIDPattern().MatchString(s.KeyID) {
		fault("key id: got %s, want small letters, digits and . _ + -, at most 127", text.Quote(s.KeyID))
	}
	if s.By != "" && !printable(s.By) {
		fault("by: got %s, want at most 128 printable characters", text.Quote(s.By))
	}
	return errors.Join(faults...)
}

// printable reports whether s is a short line as it stands.
func printable(s string) bool { return s != "" && s == text.Line(s, 128) }

// day is how times are told to people.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// Allow reports whether the value may be given to a job, under a name, now.
//
// Errors: *[refused.Refusal].
func (s *Secret) Allow(name string, now time.Time, c Claims) error {
	switch {
	case s.Name != name:
		return refusal(name, refused.Renamed, "it was sealed as %s", s.Name)
	case now.Before(s.NotBefore):
		return refusal(name, refused.NotYetValid, "it begins %s", day(s.NotBefore))
	case !now.Before(s.Expires):
		return refusal(name, refused.Expired, "it ended %s; seal the value anew", day(s.Expires))
	}
	return s.Admit(name, c)
}

// Admit returns a refusal unless a job with these claims may have the value called
// name.
func (b *Binding) Admit(name string, c Claims) error {
	for _, one := range []struct {
		reason  refused.Reason
		claimed string
		bound   []string
	}{
		{refused.WrongOrganization, c.Organization, []string{b.Organization}},
		{refused.WrongPipeline, c.Pipeline, b.Pipelines},
		{refused.WrongQueue, c.Queue, b.Queues},
		{refused.WrongStep, c.Step, b.Steps},
		{refused.WrongRef, c.Ref, b.Refs},
		{refused.WrongSource, c.Source, b.Sources},
		{refused.WrongRun, c.Run, slices.DeleteFunc([]string{b.Run}, func(run string) bool { return run == "" })},
	} {
		if len(one.bound) > 0 && (one.claimed == "" || !slices.Contains(one.bound, one.claimed)) {
			return refusal(name, one.reason, "got %s, want %s", text.Quote(one.claimed), listed(one.bound))
		}
	}
	return nil
}

// listed is a list for an error, the first few of it.
func listed(values []string) string {
	if len(values) > 3 {
		return fmt.Sprintf("%s or %d others", strings.Join(values[:3], ", "), len(values)-3)
	}
	return strings.Join(values, " or ")
}

func refusal(name string, reason refused.Reason, format string, args ...any) *refused.Refusal {
	return &refused.Refusal{Name: name, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

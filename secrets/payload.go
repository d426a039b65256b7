package secrets

import (
	"time"

	"filippo.io/age"

	"github.com/gpu-mode/kbgen/schema"
)

// payloadName is the name under which submissions are sealed, and nothing else:
// what has it is bound to a run, and what is bound to a run has it.
const payloadName = schema.SealedPayloadName

// Limits of sealed payloads: what a build's variables carry, and what of it is
// left when the envelope is taken away.
const (
	maxPayloadEnvelope = schema.MaxChunks * schema.MaxInline // characters
	maxPayload         = maxPayloadEnvelope/4*3 - 16<<10     // bytes of the encoded payload
)

// SealPayload seals an encoded payload for one run, until the run can have
// begun. Of b, Run is set here.
//
// Errors: [Seal]'s.
func SealPayload(encoded, run string, b Binding, to Recipients, now time.Time, life time.Duration) (string, error) {
	now = now.UTC().Truncate(time.Second)
	b.Run = run
	return Seal(&Secret{
		Name: payloadName, Value: []byte(encoded), Binding: b, Issued: now, Expires: now.Add(life), KeyID: to.KeyID(),
	}, to.Keys())
}

// OpenPayload is [Open] for envelopes of up to [maxPayloadEnvelope] characters.
func OpenPayload(text string, identities []age.Identity) (*Secret, error) {
	return open(text, identities, maxPayloadEnvelope)
}

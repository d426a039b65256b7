package secrets

import (
	"fmt"

	"github.com/gpu-mode/kbgen/secrets/refused"
)

// Reasons and refusals are those of package refused.
type (
	Reason  = refused.Reason
	Refusal = refused.Refusal
)

const (
	Malformed         = refused.Malformed
	TooLarge          = refused.TooLarge
	UnknownRecipient  = refused.UnknownRecipient
	Altered           = refused.Altered
	Renamed           = refused.Renamed
	NotYetValid       = refused.NotYetValid
	Expired           = refused.Expired
	Unsigned          = refused.Unsigned
	WrongOrganization = refused.WrongOrganization
	WrongPipeline     = refused.WrongPipeline
	WrongQueue        = refused.WrongQueue
	WrongStep         = refused.WrongStep
	WrongRef          = refused.WrongRef
	WrongSource       = refused.WrongSource
	WrongRun          = refused.WrongRun
)

func refusal(name string, reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Name: name, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

package pipelines

import (
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

const (
	digits = "0123456789"
	smalls = "abcdefghijklmnopqrstuvwxyz"
)

// made reports whether value has at least one byte and no other than those.
func made(value, bytes string) bool {
	return value != "" && strings.Trim(value, bytes) == ""
}

// The forms of names.
var (
	isName        = form(`^[A-Z][A-Z0-9_]*(x[2-9][0-9]?)?$`) // with x before a count, as in MI300x8
	isSecretName  = form(`^[A-Z][A-Z0-9_]*$`)
	isSlice       = form(`^[1-7]g\.[1-9][0-9]?[0-9]?gb$`)
	isClass       = form(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	isArch        = form(`^[0-9][0-9][0-9]?[a-z]?$`)
	isGfx         = form(`^gfx[0-9a-f]{3,4}$`)
	isDeviceName  = form(`^[A-Za-z]([A-Za-z0-9 ()./+*-]*[A-Za-z0-9)*])?$`)
	isQueue       = form(`^[A-Za-z0-9_-]+$`)
	isRunID       = form(`^[A-Za-z0-9][A-Za-z0-9._:-]*$`)
	isVersion     = form(`^[A-Za-z0-9][A-Za-z0-9.+-]*$`)
	isPinnedImage = form(`^[a-z0-9][a-z0-9._:/-]*[a-z0-9](:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|(:[A-Za-z0-9_.-]+)?@sha256:[0-9a-f]{64})$`)

	// As Kubernetes has them: 253 bytes before the slash and 63 behind at most.
	isLabelKey   = form(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	isLabelValue = form(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`)
)

// form reports whether a value matches an expression.
func form(expr string) func(value string) bool {
	pattern := text.Pattern(expr)
	return func(value string) bool { return pattern().MatchString(value) }
}

// isPinned reports whether an image reference names one image for ever: by a
// digest of 64 hex digits, or by a tag of at most 128 characters other than
// latest.
func isPinned(ref string) bool { return isPinnedImage(ref) && !strings.HasSuffix(ref, ":latest") }

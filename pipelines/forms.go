package pipelines

import "strings"

// The forms of names. They are spelt out, not regular expressions: compiling
// these would take longer than rendering a pipeline, and every render checks
// the whole table. A test holds each against the expression it stands for.

const (
	digits  = "0123456789"
	smalls  = "abcdefghijklmnopqrstuvwxyz"
	capital = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// made reports whether value has at least one byte and no other than those.
func made(value, bytes string) bool {
	return value != "" && strings.Trim(value, bytes) == ""
}

// begins reports whether the first byte of value is one of those.
func begins(value, bytes string) bool {
	return value != "" && strings.IndexByte(bytes, value[0]) >= 0
}

// isName: ^[A-Z][A-Z0-9_]*(x[2-9][0-9]?)?$, with x before a count, as in MI300x8.
func isName(value string) bool {
	name, count, counted := strings.Cut(value, "x")
	if counted && (!begins(count, digits[2:]) || !made(count, digits) || len(count) > 2) {
		return false
	}
	return begins(name, capital) && made(name, capital+digits+"_")
}

// isSecretName: ^[A-Z][A-Z0-9_]*$
func isSecretName(value string) bool {
	return begins(value, capital) && made(value, capital+digits+"_")
}

// isSlice: ^[1-7]g\.[1-9][0-9]?[0-9]?gb$
func isSlice(value string) bool {
	units, rest, ok := strings.Cut(value, "g.")
	memory, isGB := strings.CutSuffix(rest, "gb")
	return ok && isGB && len(units) == 1 && made(units, digits[1:8]) && begins(memory, digits[1:]) && made(memory, digits) && len(memory) <= 3
}

// isClass: ^[a-z0-9]([a-z0-9-]*[a-z0-9])?$
func isClass(value string) bool {
	return made(value, smalls+digits+"-") && value[0] != '-' && value[len(value)-1] != '-'
}

// isArch: ^[0-9][0-9][0-9]?[a-z]?$
func isArch(value string) bool {
	number := strings.TrimRight(value, smalls)
	return made(number, digits) && (len(number) == 2 || len(number) == 3) && len(value) <= len(number)+1
}

// isGfx: ^gfx[0-9a-f]{3,4}$
func isGfx(value string) bool {
	number, ok := strings.CutPrefix(value, "gfx")
	return ok && made(number, digits+"abcdef") && (len(number) == 3 || len(number) == 4)
}

// isDeviceName: ^[A-Za-z]([A-Za-z0-9 ()./+*-]*[A-Za-z0-9)*])?$
func isDeviceName(value string) bool {
	return begins(value, capital+smalls) && made(value, capital+smalls+digits+" ()./+*-") &&
		begins(value[len(value)-1:], capital+smalls+digits+")*")
}

// isQueue: ^[A-Za-z0-9_-]+$
func isQueue(value string) bool { return made(value, capital+smalls+digits+"_-") }

// isRunID: ^[A-Za-z0-9][A-Za-z0-9._:-]*$
func isRunID(value string) bool {
	return begins(value, capital+smalls+digits) && made(value, capital+smalls+digits+"._:-")
}

// isLabelKey: ^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$,
// as Kubernetes has it: 253 bytes before the slash and 63 behind at most.
func isLabelKey(value string) bool {
	name := value
	if domain, rest, ok := strings.Cut(value, "/"); ok {
		if !made(domain, smalls+digits+".-") || !begins(domain, smalls+digits) || !begins(domain[len(domain)-1:], smalls+digits) || len(domain) > 253 {
			return false
		}
		name = rest
	}
	return name != "" && isLabelValue(name)
}

// isLabelValue: ^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$, at most 63 bytes.
func isLabelValue(value string) bool {
	return value == "" || len(value) <= maxClass && made(value, capital+smalls+digits+"._-") &&
		begins(value, capital+smalls+digits) && begins(value[len(value)-1:], capital+smalls+digits)
}

// isVersion: ^[A-Za-z0-9][A-Za-z0-9.+-]*$
func isVersion(value string) bool {
	return begins(value, capital+smalls+digits) && made(value, capital+smalls+digits+".+-")
}

// isPinned reports whether an image reference names one image for ever: by a
// digest of 64 hex digits, or by a tag of at most 128 characters other than
// latest.
func isPinned(ref string) bool {
	if name, digest, ok := strings.Cut(ref, "@sha256:"); ok {
		if len(digest) != 64 || !made(digest, digits+"abcdef") {
			return false
		}
		repository, tag, tagged := cutLast(name, ":")
		return isRepository(name) || tagged && isRepository(repository) && made(tag, capital+smalls+digits+"_.-")
	}
	repository, tag, tagged := cutLast(ref, ":")
	return tagged && isRepository(repository) && tag != "latest" && len(tag) <= maxTag &&
		begins(tag, capital+smalls+digits+"_") && made(tag, capital+smalls+digits+"_.-")
}

// isRepository: ^[a-z0-9][a-z0-9._:/-]*[a-z0-9]$
func isRepository(value string) bool {
	return len(value) >= 2 && made(value, smalls+digits+"._:/-") &&
		begins(value, smalls+digits) && begins(value[len(value)-1:], smalls+digits)
}

func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

package generator

import (
	"fmt"

	printable "github.com/gpu-mode/kbgen/schema/text"
)

// released is the form of a version that somebody can install: not that of a
// commit between two releases.
var (
	released = printable.Pattern(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	commit   = printable.Pattern(`[-.]\d{14}-[0-9a-f]{12}$`)
)

// Expected is the version that the bootstrap step of this kbgen asks for: its
// own when it is a release, unless something else is asked for.
func Expected(asked, own string) string {
	switch {
	case asked == "none":
		return ""
	case asked != "":
		return asked
	case released().MatchString(own) && !commit().MatchString(own):
		return own
	}
	return ""
}

// Expect refuses to run where the step expects another kbgen: it might
// render other steps than the ones that were looked at.
func Expect(want, own string) error {
	if want == "" || want == "none" || want == own {
		return nil
	}
	return fmt.Errorf("this is kbgen %s, and the step that runs it expects %s", own, want)
}

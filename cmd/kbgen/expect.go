package main

import (
	"fmt"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/text"
)

// released is the form of a version that somebody can install: not that of a
// commit between two releases.
var (
	released = text.Pattern(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	commit   = text.Pattern(`[-.]\d{14}-[0-9a-f]{12}$`)
)

// expected is the version that the bootstrap step of this kbgen asks for: its
// own when it is a release, unless something else is asked for.
func expected(asked, own string) string {
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

// asExpected refuses to run where the step expects another kbgen: it might
// render other steps than the ones that were looked at.
func asExpected(want, own string) error {
	if want == "" || want == "none" || want == own {
		return nil
	}
	return cli.WithHint(fmt.Errorf("this is kbgen %s, and the step that runs it expects %s", own, want),
		"install %[1]s on the bootstrap machines (go install github.com/gpu-mode/kbgen/cmd/kbgen@%[1]s), or paste into the pipeline's settings what \"kbgen render bootstrap\" of %[2]s prints", want, own)
}

package resource

import (
	"bytes"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
)

const maxDiffed = 1 << 20

// diff adds to the action what changes in a text.
func (c *comparison) diff(a Action, have, want Node) Action {
	f, ok := a.want.(File)
	switch {
	case !ok:
	case f.Secret:
		a.Diff = "(secret, not shown)\n"
	case !isText(have.Content) || !isText(want.Content):
		a.Diff = "(not text, not shown)\n"
	default:
		from := a.Name
		if a.Verb == Make {
			from = "/dev/null"
		}
		a.Diff = udiff.Unified(from, a.Name, string(have.Content), string(want.Content))
	}
	return a
}

func isText(content []byte) bool {
	return len(content) <= maxDiffed && utf8.Valid(content) && !bytes.ContainsRune(content, 0)
}

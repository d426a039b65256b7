package doctor

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

// A version is one that a program or package reports of itself: its numbers, and the
// rest of the word, such as "-rc.1" or "+ds1".
type version struct {
	numbers []int
	rest    string
}

var versionText = text.Pattern(`([0-9]+(?:\.[0-9]+)+)(\S*)`)

// readVersion returns the first version in a text.
func readVersion(s string) (v version, ok bool) {
	m := versionText().FindStringSubmatch(s)
	if m == nil {
		return v, false
	}
	for part := range strings.SplitSeq(m[1], ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return v, false
		}
		v.numbers = append(v.numbers, n)
	}
	v.rest = m[2]
	return v, true
}

var preRelease = text.Pattern(`^[-~](rc|alpha|beta)`)

// before reports whether v is older than a release, "1.2.8". A pre-release is older
// than its release.
func (v version) before(release string) bool {
	want, _ := readVersion(release)
	c := slices.Compare(v.numbers, want.numbers)
	return c < 0 || c == 0 && preRelease().MatchString(v.rest)
}

func (v version) String() string {
	var parts []string
	for _, n := range v.numbers {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ".") + v.rest
}

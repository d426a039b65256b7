// Package near finds, for a name that nobody knows, the known name that was
// probably meant. It does not know what the names stand for.
package near

import (
	"fmt"
	"strings"
)

// Name returns the name that got is the beginning of, the first in order, or
// else the one with the fewest edits, if those are at most three and half
// of its letters. Case does not matter. It is empty when no name is near.
func Name(got string, have []string) string {
	got = strings.ToLower(got)
	found, best := "", min(3, max(1, len(got)/2))+1
	for _, name := range have {
		lower := strings.ToLower(name)
		if got != "" && strings.HasPrefix(lower, got) {
			return name
		}
		if d := Distance(got, lower); d < best {
			best, found = d, name
		}
	}
	return found
}

// Clause returns what an error about an unknown name goes on with,
// `, nearest is "evaluate"`; nothing when no name is near.
func Clause(got string, have []string) string {
	if name := Name(got, have); name != "" {
		return fmt.Sprintf(", nearest is %q", name)
	}
	return ""
}

// Perhaps returns what an error says is wanted instead: "evaluate perhaps, or
// another of evaluate, smoke"; or "one of evaluate, smoke" when none is near.
func Perhaps(got string, have []string) string {
	all := strings.Join(have, ", ")
	if name := Name(got, have); name != "" {
		return name + " perhaps, or another of " + all
	}
	return "one of " + all
}

// longest is the length of the longest word that is compared byte by byte.
const longest = 256

// Distance counts the insertions, deletions and replacements of bytes, and the
// swaps of neighbours, between two short words. Texts beyond [longest] bytes
// differ in all of theirs: nobody mistypes those, and the count would take for
// ever.
func Distance(a, b string) int {
	if n := max(len(a), len(b)); n > longest && a != b {
		return n
	}
	var before, above []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row = above, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := above[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(above[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

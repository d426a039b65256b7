// Package near finds, for a name that nobody knows, the known name that was
// probably meant. It does not know what the names stand for.
package near

import "strings"

// Name returns the name that got is the beginning of, the first in order, or
// else the one with the fewest edits; case does not matter. It is empty only
// when there are no names.
func Name(got string, have []string) string {
	got = strings.ToLower(got)
	found, best := "", -1
	for _, name := range have {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, got) {
			return name
		}
		if d := Distance(got, lower); best < 0 || d < best {
			best, found = d, name
		}
	}
	return found
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

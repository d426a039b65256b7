package vendor

import "strings"

// nearest returns the name that got is the beginning of, the first in order,
// or else the one with the fewest bytes to change; case does not matter.
func nearest(got string, have []string) string {
	got = strings.ToLower(got)
	best, found := -1, ""
	for _, name := range have {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, got) {
			return name
		}
		if d := distance(got, lower); best < 0 || d < best {
			best, found = d, name
		}
	}
	return found
}

// distance is the number of bytes to insert, delete or replace to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

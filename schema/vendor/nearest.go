package vendor

import "strings"

// nearest returns the name most like got, in any case; "" when there is none.
func nearest(got string, have []string) string {
	best, found := -1, ""
	for _, name := range have {
		if d := distance(strings.ToLower(got), strings.ToLower(name)); best < 0 || d < best {
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

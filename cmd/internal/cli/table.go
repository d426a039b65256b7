package cli

import (
	"bufio"
	"io"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// WriteTable writes rows, whose cells stand between tabs, in columns. A terminal shows
// East Asian characters and emoji twice as wide as others, and the columns are even there.
func WriteTable(w io.Writer, rows []string) error {
	var widths []int
	table := make([][]string, len(rows))
	for i, row := range rows {
		table[i] = strings.Split(row, "\t")
		for at, cell := range table[i] {
			if at == len(widths) {
				widths = append(widths, 0)
			}
			widths[at] = max(widths[at], cells(cell))
		}
	}
	out := bufio.NewWriter(w)
	for _, row := range table {
		var line strings.Builder
		for at, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[at]-cells(cell)+2))
		}
		out.WriteString(strings.TrimRight(line.String(), " "))
		out.WriteByte('\n')
	}
	return out.Flush()
}

// cells is how many cells of a terminal a text takes.
func cells(s string) (n int) {
	for _, r := range s {
		switch kind := width.LookupRune(r).Kind(); {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf): // drawn over the character before
		case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}

package page

import (
	"fmt"
	"net/http"
	"strings"
)

// ansi are the sixteen named colours, chosen to be read on the dark ground of
// a log; bright ones behind.
var ansi = [16]string{
	"#6e7681", "#ff7b72", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#d0d7de",
	"#8b949e", "#ffa198", "#7ee787", "#f2cc60", "#a5d6ff", "#e2c5ff", "#8ddfe6", "#ffffff",
}

// terminalStyle serves the classes that terminal-to-html gives to colours.
func terminalStyle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "max-age=3600")
	var b strings.Builder
	for i, colour := range ansi[:8] {
		bright := ansi[i+8]
		fmt.Fprintf(&b, ".term-fg%d{color:%s}.term-fgi%d{color:%s}", 30+i, colour, 90+i, bright)
		fmt.Fprintf(&b, ".term-bg%d{background:%s;color:#0d1117}.term-bgi%d{background:%s;color:#0d1117}\n", 40+i, colour, 100+i, bright)
	}
	for i := range 256 {
		fmt.Fprintf(&b, ".term-fgx%d{color:%s}.term-bgx%d{background:%s}\n", i, xterm(i), i, xterm(i))
	}
	_, _ = w.Write([]byte(b.String())) // the client may have left
}

// xterm is a colour of the 256: sixteen named, a cube of 6x6x6, 24 greys.
func xterm(i int) string {
	if i < 16 {
		return ansi[i]
	}
	if i >= 232 {
		grey := 8 + 10*(i-232)
		return fmt.Sprintf("#%02x%02x%02x", grey, grey, grey)
	}
	level := func(n int) int {
		if n == 0 {
			return 0
		}
		return 55 + 40*n
	}
	i -= 16
	return fmt.Sprintf("#%02x%02x%02x", level(i/36), level(i/6%6), level(i%6))
}

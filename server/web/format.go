package web

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

// maxName is how much of a foreign name a page shows, in runes.
const maxName = 60

// name makes a foreign name fit for one line of a page.
func name(s string) string {
	if s = text.Line(s, maxName); s == "" {
		return "(no name)"
	}
	return s
}

// microseconds writes a score of seconds as Kernelboard does: microseconds with
// three decimals.
func microseconds(seconds float64) string {
	if math.IsNaN(seconds) || math.IsInf(seconds, 0) || math.Abs(seconds) > 1e9 {
		return "–"
	}
	return strconv.FormatFloat(seconds*1e6, 'f', 3, 64)
}

// behind writes how much slower a score is than the first: "+1.250", "+3.1 %".
// Both are "" for the first itself.
func behind(seconds, first float64) (difference, share string) {
	if !(seconds > first) || !(first > 0) {
		return "", ""
	}
	return "+" + microseconds(seconds-first), percentage(seconds/first - 1)
}

// percentage writes a share above zero: "+0.1 %", "+340 %", "×12".
func percentage(share float64) string {
	switch {
	case share < 0.0005:
		return "< 0.1 %"
	case share < 1:
		return fmt.Sprintf("+%.1f %%", share*100)
	case share < 9:
		return fmt.Sprintf("×%.1f", share+1)
	}
	return fmt.Sprintf("×%.0f", share+1)
}

// nanoseconds writes a time that a tester measured, in the unit that suits it.
func nanoseconds(ns float64) string {
	switch a := math.Abs(ns); {
	case math.IsNaN(ns) || math.IsInf(ns, 0):
		return "–"
	case a >= 1e9:
		return fmt.Sprintf("%.3f s", ns/1e9)
	case a >= 1e6:
		return fmt.Sprintf("%.3f ms", ns/1e6)
	case a >= 1e3:
		return fmt.Sprintf("%.3f µs", ns/1e3)
	}
	return fmt.Sprintf("%.1f ns", ns)
}

// count writes a number with its noun: "1 run", "12 runs", "12,345 runs".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}

// thousands writes 12345 as "12,345".
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// spell writes a length of time in words, its largest unit and the next one where
// that matters: "45 seconds", "2 hours 5 minutes", "3 days".
func spell(d time.Duration) string {
	d = max(d, 0)
	minutes, hours, days := int(d.Minutes()), int(d.Hours()), int(d.Hours()/24)
	switch {
	case d < time.Minute:
		return count(int(d.Seconds()), "second")
	case hours == 0:
		return count(minutes, "minute")
	case days == 0:
		if hours < 6 && minutes%60 > 0 {
			return count(hours, "hour") + " " + count(minutes%60, "minute")
		}
		return count(hours, "hour")
	case days < 4 && hours%24 > 0:
		return count(days, "day") + " " + count(hours%24, "hour")
	case days >= 730:
		return count(days/365, "year")
	case days >= 92:
		return count(days/30, "month")
	}
	return count(days, "day")
}

// about writes an expected wait, which nobody knows to the second.
func about(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < 10*time.Second:
		return "a few seconds"
	case d < time.Minute:
		return "about " + spell(d.Round(10*time.Second))
	case d < time.Hour:
		return "about " + spell(d.Round(time.Minute))
	}
	return "about " + spell(d.Round(5*time.Minute))
}

// lasted writes how long something took: "45 ms", "1.2 s", "3 min 4 s".
func lasted(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", math.Floor(d.Seconds()*10)/10)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// A moment is a point in time as a page shows it, in UTC.
type moment struct {
	Text string // "3 minutes ago", "12 Nov 16:04", "12 Nov 2025"; "": never
	ISO  string // for the datetime attribute
	Full string
}

func newMoment(t, now time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	t, now = t.UTC(), now.UTC()
	m := moment{ISO: t.Format(time.RFC3339), Full: t.Format("2 January 2006, 15:04:05 UTC")}
	switch ago := now.Sub(t); {
	case ago >= 0 && ago < 10*time.Second:
		m.Text = "just now"
	case ago >= 0 && ago < 24*time.Hour:
		m.Text = brief(ago) + " ago"
	case t.Year() == now.Year():
		m.Text = t.Format("2 Jan 15:04")
	default:
		m.Text = t.Format("2 Jan 2006")
	}
	return m
}

// brief is a length of time in one unit: "45 s", "5 min", "3 h".
func brief(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h", int(d.Hours()))
}

// deadline says in words when a board closes.
func deadline(t, now time.Time) string {
	if now.After(t) {
		return "closed " + spell(now.Sub(t)) + " ago"
	}
	return "closes in " + spell(t.Sub(now))
}

// size writes a number of bytes: "812 bytes", "1.4 KiB".
func size(n int) string {
	switch {
	case n < 1024:
		return count(n, "byte")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/1024)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

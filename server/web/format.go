package web

import (
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict/view"
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

// behind writes how much slower a score is than the first: "+1.250", "+3.1 %".
// Both are "" for the first itself.
func behind(seconds, first float64) (difference, share string) {
	if !(seconds > first) || !(first > 0) {
		return "", ""
	}
	return "+" + format.Microseconds(seconds-first), percentage(seconds/first - 1)
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

// spell writes a length of time in words, its largest unit and the next one where
// that matters: "45 seconds", "2 hours 5 minutes", "3 days".
func spell(d time.Duration) string {
	d = max(d, 0)
	minutes, hours, days := int(d.Minutes()), int(d.Hours()), int(d.Hours()/24)
	switch {
	case d < time.Minute:
		return format.Count(int(d.Seconds()), "second")
	case hours == 0:
		return format.Count(minutes, "minute")
	case days == 0:
		if hours < 6 && minutes%60 > 0 {
			return format.Count(hours, "hour") + " " + format.Count(minutes%60, "minute")
		}
		return format.Count(hours, "hour")
	case days < 4 && hours%24 > 0:
		return format.Count(days, "day") + " " + format.Count(hours%24, "hour")
	case days >= 730:
		return format.Count(days/365, "year")
	case days >= 92:
		return format.Count(days/30, "month")
	}
	return format.Count(days, "day")
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

// newMoment shows a point in time in UTC: "3 min ago", "12 Nov 16:04", "12 Nov 2025".
func newMoment(t, now time.Time) view.Moment {
	if t.IsZero() {
		return view.Moment{}
	}
	t, now = t.UTC(), now.UTC()
	m := view.Moment{ISO: t.Format(time.RFC3339), Full: t.Format("2 January 2006, 15:04:05 UTC")}
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

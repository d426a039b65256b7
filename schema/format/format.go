// Package format writes numbers for people: scores, times, durations, sizes and
// counts. Every program and page uses it, so that a figure looks the same
// everywhere. It is pure.
package format

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// none stands for a number that cannot be shown.
const none = "–"

// Score formats seconds as a leaderboard shows them: "12.346 µs". All scores have
// one unit, so that they can be compared in a column.
func Score(seconds float64) string { return Microseconds(seconds) + " µs" }

// Microseconds is [Score] without its unit, for a column whose heading has it.
//
// Source: gpu-mode/kernelboard shows microseconds with three decimals.
func Microseconds(seconds float64) string {
	if !finite(seconds) || math.Abs(seconds) > 1e9 {
		return none
	}
	return strconv.FormatFloat(seconds*1e6, 'f', 3, 64)
}

// Time formats nanoseconds in the unit that suits them: "12.346 µs", "812.0 ns".
func Time(ns float64) string {
	if !finite(ns) {
		return none
	}
	switch a := math.Abs(ns); {
	case a >= 1e9:
		return fmt.Sprintf("%.3f s", ns/1e9)
	case a >= 1e6:
		return fmt.Sprintf("%.3f ms", ns/1e6)
	case a >= 1e3:
		return fmt.Sprintf("%.3f µs", ns/1e3)
	}
	return fmt.Sprintf("%.1f ns", ns)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Duration formats how long something took: "45 ms", "1.2 s", "3 m 04 s",
// "2 h 05 m", "3 d 04 h". It never rounds up.
func Duration(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case d < time.Minute:
		return fmt.Sprintf("%d.%d s", d/time.Second, d%time.Second/(100*time.Millisecond))
	}
	return Elapsed(d)
}

// Elapsed formats a duration that still grows, in whole seconds.
func Elapsed(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 60*60:
		return fmt.Sprintf("%d m %02d s", s/60, s%60)
	case s < 24*60*60:
		return fmt.Sprintf("%d h %02d m", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d d %02d h", s/86400, s/3600%24)
}

// Seconds converts a number of seconds that a program wrote, at most 1e6, to a
// duration.
func Seconds(s float64) time.Duration {
	return time.Duration(min(s, 1e6) * float64(time.Second))
}

// Size formats a number of bytes: "812 B", "1.4 KiB", "20.0 MiB".
func Size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/1024, 0
	for units := "KMGT"; f >= 1023.95 && unit < len(units)-1; unit++ {
		f /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[unit])
}

// Count formats a number with its noun, whose plural ends in s: "1 run",
// "12,345 runs".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Number(n) + " " + noun + "s"
}

// Number formats 12345 as "12,345".
func Number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

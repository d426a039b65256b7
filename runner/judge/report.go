package judge

import (
	"strings"
	"unicode"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// parseReport reads what a harness wrote: lines of "key: value". A key that
// occurs again takes the later value. Verdicts and figures (check, the counts,
// test.*, benchmark.*) keep the first: a harness writes those once, so a second,
// different one comes from somebody else. The first such key is returned as
// contradicted.
//
// Source of the line rules: gpu-mode/kernelbot, run_eval.py, run_program.
func parseReport(raw string) (report schema.Report, contradicted string) {
	index := map[string]int{}
	for line := range strings.FieldsFuncSeq(raw, lineEnd) {
		key, value, _ := strings.Cut(line, ":")
		if key == "" && value == "" {
			continue
		}
		key, value = text.Storable(strings.TrimFunc(key, space)), text.Storable(strings.TrimFunc(value, space))
		i, again := index[key]
		switch {
		case !again:
			index[key] = len(report)
			report = append(report, schema.Entry{Key: key, Value: value})
		case !figure(key):
			report[i].Value = value
		case report[i].Value != value && contradicted == "":
			contradicted = key
		}
	}
	return report, contradicted
}

func figure(key string) bool {
	return key == "check" || key == "test-count" || key == "benchmark-count" ||
		strings.HasPrefix(key, "test.") || strings.HasPrefix(key, "benchmark.")
}

// lineEnd holds for the characters at which Python's splitlines cuts.
func lineEnd(r rune) bool {
	return strings.ContainsRune("\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029", r)
}

// space holds for the characters that Python's strip removes.
func space(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

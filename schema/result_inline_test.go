package schema

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
)

func TestInlineResult(t *testing.T) {
	raw := []byte(strings.Repeat(`{"a line": "that repeats"}`+"\n", 500))
	value, short := InlineResult(raw, "0190-job")
	if !short || len(value) > MaxInlineResult {
		t.Fatalf("InlineResult: got %d characters, %t", len(value), short)
	}
	got, job, err := ParseInlineResult(value)
	if err != nil || !bytes.Equal(got, raw) || job != "0190-job" {
		t.Errorf("ParseInlineResult: got %d bytes of job %q, %v", len(got), job, err)
	}
	noise := make([]byte, MaxInlineResult)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	for name, raw := range map[string][]byte{"noise": noise, "long": make([]byte, MaxInlineResultRaw+1)} {
		if _, short := InlineResult(raw, "j"); short {
			t.Errorf("%s is taken for short", name)
		}
	}
	if _, short := InlineResult(raw, "two words"); short {
		t.Error("a job id with a space is taken")
	}
}

func TestInlineResultsThatAreNone(t *testing.T) {
	value, _ := InlineResult([]byte(`{"runs": {}}`), "job")
	parts := strings.Split(value, " ")
	var bomb bytes.Buffer
	z := zlib.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 8<<20)) // a buffer takes everything
	z.Close()
	for name, tt := range map[string]struct{ value, want string }{
		"empty":        {"", "another form"},
		"other form":   {"kbr2 " + strings.Join(parts[1:], " "), "another form"},
		"no base64":    {strings.Join(append(parts[:3:3], "*"), " "), "base64"},
		"no zlib":      {strings.Join(append(parts[:3:3], "AAAA"), " "), "zlib"},
		"cut":          {strings.Join(append(parts[:3:3], parts[3][:8]), " "), "inline result"},
		"other digest": {strings.Join([]string{parts[0], parts[1], strings.Repeat("0", 64), parts[3]}, " "), "digest"},
		"a bomb":       {strings.Join(append(parts[:3:3], base64.StdEncoding.EncodeToString(bomb.Bytes())), " "), "more than 1048576 bytes"},
		"too long":     {value + strings.Repeat("A", MaxInlineResult), "at most 16384"},
	} {
		if _, _, err := ParseInlineResult(tt.value); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		} else if tt.value != "" && strings.Contains(err.Error(), parts[3]) {
			t.Errorf("%s: the error quotes the value: %v", name, err)
		}
	}
}

// manyRuns is a hostile result of so many runs.
func manyRuns(n int) []byte {
	var b strings.Builder
	b.WriteString(`{"runs": {`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"profile.%d": {"start": "2026-02-04T19:14:58Z", "end": "2026-02-04T19:14:58Z"}`, i)
	}
	b.WriteString(`}}`)
	return []byte(b.String())
}

// Decoding takes time in proportion to the size: ten times the runs must not
// take a hundred times as long.
func TestSlowDecodingIsLinear(t *testing.T) {
	testenv.NeedSlow(t)
	least := func(n int) time.Duration {
		data, best := manyRuns(n), time.Hour
		for range 3 {
			start := time.Now()
			r, err := DecodeResult(data)
			if err != nil || len(r.Runs) != n {
				t.Fatalf("DecodeResult: %v", err)
			}
			best = min(best, time.Since(start))
		}
		return best
	}
	few, many := least(6_000), least(60_000)
	t.Logf("6,000 runs %s, 60,000 runs %s", few, many)
	if many > 40*few {
		t.Errorf("60,000 runs took %s, %.0f times as long as 6,000", many, float64(many)/float64(few))
	}
}

func TestDecodingStopsAtCancel(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := DecodeResultContext(ctx, manyRuns(60_000)); !errors.Is(err, context.Canceled) {
		t.Errorf("DecodeResultContext: got %v, want context.Canceled", err)
	}
}

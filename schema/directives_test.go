package schema

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseDirectives(t *testing.T) {
	for _, tt := range []struct {
		source string
		want   Directives
		fault  string
	}{
		{source: ""},
		{source: "import torch\n#!POPCORN leaderboard late\n"},
		{source: "\n#!POPCORN leaderboard late\n"},
		{source: "#!POPCORN leaderboard grayscale\n#!POPCORN gpus H100 A100 H100\nimport torch\n", want: Directives{"grayscale", []string{"H100", "A100"}}},
		{source: "//!POPCORN LEADERBOARD x\r\n// about\r\n//!POPCORN gpu B200_BK\r\n#include <x>\r\n", want: Directives{"x", []string{"B200_BK"}}},
		{source: "# !POPCORN leaderboard x\n #!POPCORN leaderboard y\n", want: Directives{}},
		{source: "#!popcorn leaderboard x\n", want: Directives{}},
		{source: "#!POPCORN\n", fault: "line 1: !POPCORN: got nothing"},
		{source: "# a\n#!POPCORN leaderboard\n", fault: "line 2: !POPCORN: leaderboard: got 0 names, want one"},
		{source: "#!POPCORN leaderboard a b\n", fault: "got 2 names"},
		{source: "#!POPCORN leaderboard a\n#!POPCORN leaderboard b\n", fault: "line 2: !POPCORN: leaderboard: it is named twice"},
		{source: "#!POPCORN gpus\n", fault: "gpus: got no GPU type"},
		{source: "#!POPCORN gpu A\n#!POPCORN gpus B\n", fault: "gpus: they are named twice"},
		{source: "#!POPCORN color red\n", fault: `got "color", want leaderboard, gpu or gpus`},
	} {
		got, err := ParseDirectives(tt.source)
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%q: error %v, want %q", tt.source, err, tt.fault)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: got %+v, %v, want %+v", tt.source, got, err, tt.want)
		}
	}
}

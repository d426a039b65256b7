package cli

import (
	"strings"
	"testing"
)

func TestWriteTable(t *testing.T) {
	var out strings.Builder
	err := WriteTable(&out, []string{"NAME\tRANK\tNOTE", "グレース\t1\t", "e\u0301mile\t10\tfirst", "🚀\t2\t", "ann\t3"})
	want := "NAME      RANK  NOTE\nグレース  1\ne\u0301mile     10    first\n🚀        2\nann       3\n"
	if err != nil || out.String() != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, out.String(), want)
	}
}

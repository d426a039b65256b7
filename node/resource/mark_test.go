package resource

import (
	"bytes"
	"strings"
	"testing"
)

func TestMarks(t *testing.T) {
	for _, content := range []string{"", "a: 1\n", "no end of line", "#!/bin/sh\nexec true\n", "#!/bin/sh", "# kbnode sha256:old\nrest\n"} {
		marked := mark([]byte(content))
		if !Owned(marked) || !Marked(marked) {
			t.Errorf("Mark(%q) = %q, which is not Owned", content, marked)
		}
		if again := mark(marked); !bytes.Equal(again, marked) {
			t.Errorf("Mark(%q) = %q, want the same", marked, again)
		}
		for i := range marked {
			changed := bytes.Clone(marked)
			changed[i] ^= 0x20
			if Owned(changed) {
				t.Errorf("Owned(%q), with byte %d changed", changed, i)
			}
		}
		if Owned(append(marked, "one more\n"...)) {
			t.Errorf("Owned, with a line more than %q", marked)
		}
	}
	if Owned([]byte("a: 1\n")) || Marked([]byte("#!/bin/sh\n")) {
		t.Error("a file without a mark counts as ours")
	}
	if script := string(mark([]byte("#!/bin/sh\ntrue\n"))); !strings.HasPrefix(script, "#!/bin/sh\n# kbnode sha256:") {
		t.Errorf("the mark of a script: %q", script)
	}
}

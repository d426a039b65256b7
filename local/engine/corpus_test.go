package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every pipeline that the rules call right, and every one that kbgen renders, can
// be a pipeline here, or is refused for what a stand-in has not.
func TestCorpus(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../schema/pipeline/testdata/corpus/right/*.y*ml", "../../testdata/golden/*/*.y*ml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) < 10 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	refused := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = parseConfiguration(string(text), map[string]string{"ARCH": "arm64", "PRIORITY": "1", "LIMIT": "1", "MINUTES": "5"})
		switch {
		case err == nil:
		case filepath.Base(file) == "names.yml": // its artifacts and timeout are in no documentation
		case strings.Contains(err.Error(), "is not supported by kblocal"):
			refused++
		default:
			t.Errorf("%s: %v", file, err)
		}
	}
	t.Logf("%d pipelines, %d of them ask for what there is not here", len(files), refused)
}

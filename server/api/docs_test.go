package api_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/server/servertest"
)

// The commands of docs/api.md work, in their order.
func TestExamplesOfTheDocumentation(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("NOT RUN: no curl is installed")
	}
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	script := "set -e\n"
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(page, -1)
	for _, b := range blocks {
		script += string(b[1])
	}
	if len(blocks) < 8 {
		t.Fatalf("the page has %d blocks of commands", len(blocks))
	}
	r := newRig(t, servertest.SQLite(t), nil)
	over, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-r.woken:
				servertest.Evaluate(t, r.s, nil)
			case <-over:
				return
			}
		}
	}()
	sh := exec.Command("sh", "-c", script)
	sh.Dir = t.TempDir()
	sh.Env = append(os.Environ(), "KB="+r.URL, "KB_CLI_ID="+r.cli["ann"], "KBSERVE_ADMIN_TOKEN="+adminToken)
	out, err := sh.CombinedOutput()
	close(over)
	<-stopped
	for _, want := range []string{`"id":"7","name":"ann"`, "event: done", `"ranks":true`, "log of build 7", `"ranking_by":"geom"`, `"codes":[`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the commands print no %s", want)
		}
	}
	if err != nil || t.Failed() {
		t.Errorf("%v:\n%s", err, out)
	}
}

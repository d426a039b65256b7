package e2e

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kblocal's secret store, read by a real agent: in each form a step may have, in
// no log and no file that kblocal keeps.
func TestSecretsOffline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"secrets": "# a comment\nDEPLOY_KEY=kbcanary-deploy-77aa\nOTHER=kbcanary-other-88bb\nFROM_HERE\n",
		"pipeline.yml": `secrets: {SHARED: OTHER, OVER: OTHER}
steps:
  - key: list
    command: test "$$DEPLOY_KEY" = kbcanary-deploy-77aa && test "$$SHARED" = kbcanary-other-88bb && echo "it is $$DEPLOY_KEY"
    secrets: [DEPLOY_KEY]
  - key: names
    command: test "$$OVER" = kbcanary-deploy-77aa && test -z "$${DEPLOY_KEY-}" && echo "over $$OVER"
    secrets: {OVER: DEPLOY_KEY}
  - key: asks
    command: test "$(buildkite-agent secret get FROM_HERE)" = kbcanary-passed-99cc && echo asked
  - key: none
    command: echo never
    secrets: [NOBODYS]
`,
		"wrong-name":  "2FA=kbcanary\n",
		"wrong-line":  "kbcanary with a space=x\n",
		"refused.yml": "steps: [{command: x, secrets: [a-b]}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	run := func(args ...string) output {
		return command(t, ctx, []string{"KBLOCAL_AGENT=" + agent, "FROM_HERE=kbcanary-passed-99cc"}, "", filepath.Join(bin, "kblocal"), append([]string{"run"}, args...)...)
	}
	state := t.TempDir()
	s := run(filepath.Join(dir, "pipeline.yml"), "--here", "--dir", state, "--secrets-file", filepath.Join(dir, "secrets"))
	for _, want := range []string{"[list] it is [REDACTED]", "[names] over [REDACTED]", "[asks] asked", `there is no secret "NOBODYS"`, "[none] failed"} {
		if !strings.Contains(s.stdout, want) {
			t.Errorf("the run lacks %q", want)
		}
	}
	if s.status != 1 || strings.Contains(s.stdout+s.stderr, "kbcanary-deploy") || strings.Contains(s.stdout, "never") {
		t.Errorf("exit status %d, want 1, and no value:\n%s%s", s.status, s.stdout, s.stderr)
	}
	err := filepath.WalkDir(state, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		if strings.Contains(string(text), "kbcanary-deploy") && !strings.Contains(string(text), `= kbcanary-deploy-77aa &&`) {
			t.Errorf("%s holds a value", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"wrong-name":  "a secret's name: got \"2FA\", want letters, digits and _",
		"wrong-line":  "wrong-line:1: want NAME=VALUE or NAME",
		"not-there":   "no such file",
		"refused.yml": `secrets: got "a-b", want letters`,
	} {
		file, pipeline := filepath.Join(dir, args), filepath.Join(dir, "pipeline.yml")
		if strings.HasSuffix(args, ".yml") {
			file, pipeline = filepath.Join(dir, "secrets"), file
		}
		s := run(pipeline, "--here", "--secrets-file", file)
		if s.status == 0 || !strings.Contains(s.stdout+s.stderr, want) || strings.Contains(s.stdout+s.stderr, "kbcanary") {
			t.Errorf("%s: exit status %d, want an error with %q and no value:\n%s%s", args, s.status, want, s.stdout, s.stderr)
		}
	}
}

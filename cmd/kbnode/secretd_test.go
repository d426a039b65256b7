package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/secrets"
)

// call runs kbnode with a config file in dir.
func call(t *testing.T, env map[string]string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = program().Run(context.Background(), &cli.Env{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		Environ:   func() []string { return nil },
	})
	return status, out.String(), errs.String()
}

const goodConfig = `version: 1
keys: [node.key]
oidc: {organizations: [0190c0de-0000-4000-8000-000000000001]}
old: {pipelines: [0190c0de-0000-4000-8000-0000000000aa], refs: [refs/heads/main], steps: [post]}
`

func brokerNode(t *testing.T, config string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	_, line, err := secrets.GenerateKey(secrets.Hybrid)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"node.key": line + "\n", "secretd.yml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCheck(t *testing.T) {
	dir := brokerNode(t, goodConfig)
	status, out, errs := call(t, nil, "secretd", "--check", "--config", filepath.Join(dir, "secretd.yml"))
	for _, want := range []string{
		"believed: tokens of https://agent.buildkite.com for kbnode, organizations 0190c0de-0000-4000-8000-000000000001\n",
		"old formats: for pipelines 0190c0de-0000-4000-8000-0000000000aa, refs refs/heads/main, steps post\n", "/node.key, hybrid: age1pq1",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("stdout lacks %q:\n%s", want, out)
		}
	}
	if status != 0 || errs != "" || strings.Contains(out, "SECRET") {
		t.Errorf("status %d, stderr %q, stdout %q", status, errs, out)
	}

	// systemd's credentials come before what lies beside the config.
	credentials := t.TempDir()
	key, err := os.ReadFile(filepath.Join(dir, "node.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(credentials, "node.key"), key, 0o400); err != nil {
		t.Fatal(err)
	}
	if _, out, _ := call(t, map[string]string{"CREDENTIALS_DIRECTORY": credentials}, "secretd", "--check", "--config", filepath.Join(dir, "secretd.yml")); !strings.Contains(out, credentials) {
		t.Errorf("the key is not the credential:\n%s", out)
	}
}

// A key that the job's user could read is no key for a broker, and what cannot be
// meant is refused before a socket is opened.
func TestConfigsThatAreRefused(t *testing.T) {
	for want, config := range map[string]string{
		"field tokens not found":                                strings.Replace(goodConfig, "oidc:", "tokens:", 1),
		"version: got 2, want 1":                                strings.Replace(goodConfig, "version: 1", "version: 2", 1),
		"keys: got none":                                        strings.Replace(goodConfig, "keys: [node.key]", "", 1),
		"/none.key: no such file":                               strings.Replace(goodConfig, "node.key", "none.key", 1),
		"got not exactly one of oidc and host":                  goodConfig + "host: {organization: 0190c0de-0000-4000-8000-000000000001, pipelines: [0190c0de-0000-4000-8000-0000000000aa]}\n",
		"organizations: got none":                               strings.Replace(goodConfig, "organizations: [0190c0de-0000-4000-8000-000000000001]", "", 1),
		`organizations: got "gpu-mode"`:                         strings.Replace(goodConfig, "0190c0de-0000-4000-8000-000000000001", "gpu-mode", 1),
		`issuer: got "http://agent.buildkite.com"`:              strings.Replace(goodConfig, "oidc: {", "oidc: {issuer: 'http://agent.buildkite.com', ", 1),
		`old: pipelines: got "kernels"`:                         strings.Replace(goodConfig, "0190c0de-0000-4000-8000-0000000000aa", "kernels", 1),
		"old: want pipelines, refs and steps":                   strings.Replace(goodConfig, ", steps: [post]", "", 1),
		"old: want oidc too":                                    strings.Replace(goodConfig, "oidc: {organizations: [0190c0de-0000-4000-8000-000000000001]}", "host: {organization: 0190c0de-0000-4000-8000-000000000001, pipelines: [0190c0de-0000-4000-8000-0000000000aa]}", 1),
		"signers: ":                                             goodConfig + "signers: [node.key]\n",
		"got a config that cannot be read: yaml: line 1: did n": "version: [",
	} {
		dir := brokerNode(t, config)
		status, out, errs := call(t, nil, "secretd", "--config", filepath.Join(dir, "secretd.yml"), "--socket", filepath.Join(dir, "s"))
		if status != cli.ExitUsage || out != "" || !strings.Contains(errs, want) || strings.Contains(errs, "AGE-SECRET") {
			t.Errorf("status %d, stderr %q; want %d, %q", status, errs, cli.ExitUsage, want)
		}
		if _, err := os.Lstat(filepath.Join(dir, "s")); err == nil {
			t.Errorf("%s: a socket was made", want)
		}
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660} {
		dir := brokerNode(t, goodConfig)
		if err := os.Chmod(filepath.Join(dir, "node.key"), mode); err != nil {
			t.Fatal(err)
		}
		if status, _, errs := call(t, nil, "secretd", "--check", "--config", filepath.Join(dir, "secretd.yml")); status != cli.ExitUsage || !strings.Contains(errs, "that nobody else can read (0600)") {
			t.Errorf("mode %o: status %d, stderr %q", mode, status, errs)
		}
	}
}

// Two brokers do not share a socket, and a file that is none is nobody's to take.
func TestSocketOfAnother(t *testing.T) {
	dir, err := os.MkdirTemp("", "kbn") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	config := filepath.Join(brokerNode(t, goodConfig), "secretd.yml")
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if status, _, errs := call(t, nil, "secretd", "--config", config, "--socket", filepath.Join(dir, "s")); status != cli.ExitFailed || !strings.Contains(errs, "another broker answers there") {
		t.Errorf("status %d, stderr %q", status, errs)
	}
	if status, _, errs := call(t, nil, "secretd", "--config", config, "--socket", config); status != cli.ExitUsage || !strings.Contains(errs, "got a file that is no socket") {
		t.Errorf("status %d, stderr %q", status, errs)
	}
	if text, err := os.ReadFile(config); err != nil || string(text) != goodConfig {
		t.Errorf("the file is not as it was: %v", err)
	}
}

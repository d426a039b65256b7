package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets"
)

// broker starts the rig's broker of secrets, with a new key.
func (r *gateRig) broker() *secrets.PublicKey {
	t := r.t
	t.Helper()
	key, line, err := secrets.GenerateKey(secrets.X25519)
	if err != nil {
		t.Fatal(err)
	}
	r.write("etc/kbnode/node.key", line+"\n")
	if err := os.Chmod(r.path("etc/kbnode/node.key"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.write("etc/kbnode/secretd.yml", fmt.Sprintf("version: 1\nkeys: [node.key]\noidc: {issuer: %s, organizations: [%s]}\n", r.URL(), engine.OrganizationID))
	if err := os.MkdirAll(r.path("run/kbnode"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(r.kbnode, "secretd", "--config", r.path("etc/kbnode/secretd.yml"), "--socket", r.path(client.Socket), "--any-user")
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if strings.Contains(lines.Text(), "msg=answering") {
			return key.Public
		}
	}
	t.Fatal("kbnode secretd ended")
	return nil
}

// A sealed payload is opened before its container begins, on the strength of the
// job's token: in there is nobody who could.
func TestSealedPayloadOfContainer(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN: starts agents")
	}
	t.Parallel()
	r := newGateRig(t)
	key := r.broker()
	const plain = "kbplain-0123456789abcdef"
	sealed := func(slug, run string) string {
		t.Helper()
		p, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: slug, Configuration: "steps:\n" + dockerStep(""), SkipCheckout: true})
		if err != nil {
			t.Fatal(err)
		}
		text, err := secrets.SealPayload(plain, run, secrets.Binding{Organization: engine.OrganizationID, Pipelines: []string{p.ID}},
			secrets.Recipients{{Name: "node", Key: key}}, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	// What the container of pipeline evaluate gets.
	names := []string{schema.EnvRunID, schema.EnvPayload, schema.EnvPayloadChunks, schema.EnvPayloadSHA256, schema.SecretEnv(schema.EnvRunID), schema.SecretEnv(schema.EnvPayload)}
	for i := range 3 {
		names = append(names, schema.EnvPayloadChunk(i))
	}
	carriers := "[" + strings.Join(names, ", ") + "]"
	// sees is the environment of the container.
	sees := func(slug, command string, env map[string]string) (func(string) (string, bool), string) {
		t.Helper()
		if _, err := r.Engine.UpdatePipeline(slug, func(p *engine.Pipeline) {
			p.Configuration = "steps:\n" + strings.NewReplacer("exec kbrun evaluate", command, "[KERNELBOT_GPU]", carriers).Replace(dockerStep(""))
		}); err != nil {
			t.Fatal(err)
		}
		j, log := r.built(slug, env)
		if exitStatus(j) != 0 {
			t.Errorf("%s: exit status %d:\n%s", slug, exitStatus(j), log)
		}
		seen := map[string]string{}
		for line := range strings.Lines(log) {
			if _, pair, ok := strings.Cut(line, "container sees "); ok {
				name, value, _ := strings.Cut(strings.TrimRight(pair, "\r\n"), "=")
				seen[name] = value
			} else if strings.Contains(line, plain) {
				t.Errorf("%s: the log holds the payload: %s", slug, line)
			}
		}
		return func(name string) (string, bool) { v, ok := seen[name]; return v, ok }, log
	}

	one := sealed("one", "run-1")
	lookup, log := sees("one", "exec kbrun evaluate", map[string]string{schema.EnvRunID: "run-1", schema.EnvPayload: one})
	if got, err := schema.FindPayload(lookup); got != schema.OpenedPrefix+plain {
		t.Errorf("one variable: got %.60q, %v:\n%s", got, err, log)
	}

	second := sealed("second", "run-2")
	lookup, _ = sees("second", "exec kbrun evaluate --secret", map[string]string{
		schema.EnvRunID: "run-1", schema.EnvPayload: one, schema.SecretEnv(schema.EnvRunID): "run-2", schema.SecretEnv(schema.EnvPayload): second,
	})
	if first, _ := lookup(schema.EnvPayload); first != one {
		t.Errorf("the first run of two: got %.60q, want it sealed", first)
	}
	if got, _ := lookup(schema.SecretEnv(schema.EnvPayload)); got != schema.OpenedPrefix+plain {
		t.Errorf("the second run of two: got %.60q", got)
	}

	whole := sealed("chunks", "run-3")
	parts := map[string]string{schema.EnvRunID: "run-3"}
	maps.Copy(parts, chunked(whole, 3))
	lookup, _ = sees("chunks", "exec kbrun evaluate", parts)
	if got, err := schema.FindPayload(lookup); strings.TrimSpace(got) != schema.OpenedPrefix+plain {
		t.Errorf("three chunks: got %.60q, %v", got, err)
	}

	printed := sealed("printed", "run-6")
	lookup, _ = sees("printed", "exec kbrun evaluate || env", map[string]string{schema.EnvRunID: "run-6", schema.EnvPayload: printed})
	if got, _ := lookup(schema.EnvPayload); got != printed {
		t.Errorf("a command that could print it: got %.60q, want it sealed", got)
	}

	other := sealed("other-run", "run-4")
	lookup, _ = sees("other-run", "exec kbrun evaluate", map[string]string{schema.EnvRunID: "run-5", schema.EnvPayload: other})
	if got, _ := lookup(schema.EnvPayload); !strings.HasPrefix(got, schema.RefusedPrefix+"wrong-run:") {
		t.Errorf("another run's: got %.60q", got)
	}

	if err := os.Remove(r.path(client.Socket)); err != nil {
		t.Fatal(err)
	}
	lookup, log = sees("one", "exec kbrun evaluate", map[string]string{schema.EnvRunID: "run-1", schema.EnvPayload: one})
	if got, _ := lookup(schema.EnvPayload); got != one || !strings.Contains(log, "the payload stays sealed: this node has no broker") {
		t.Errorf("without a broker: got %.60q:\n%s", got, log)
	}
}

// chunked spreads a payload over n variables.
func chunked(encoded string, n int) map[string]string {
	long := encoded + strings.Repeat(" ", (n-1)*schema.MaxInline+1-len(encoded))
	env, _ := schema.PayloadEnv(long)
	small, _ := schema.ReplacePayload(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, encoded)
	maps.Copy(env, small)
	return env
}

package e2e

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/legacy"
)

// A brokerProcess is a running kbnode secretd.
type brokerProcess struct {
	socket string
	key    *secrets.PrivateKey

	mu  sync.Mutex
	log bytes.Buffer
}

// startBroker starts kbnode secretd with a new key and a policy, URL in which is
// the stand-in's.
func startBroker(t *testing.T, r *rig, policy string) *brokerProcess {
	t.Helper()
	_, line, err := secrets.GenerateKey(secrets.Hybrid)
	if err != nil {
		t.Fatal(err)
	}
	return startBrokerWith(t, r.URL(), line+"\n", policy)
}

func startBrokerWith(t testing.TB, url, key, policy string) *brokerProcess {
	t.Helper()
	dir, err := os.MkdirTemp("", "kbn") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &brokerProcess{socket: filepath.Join(dir, "s")}
	keys, err := secrets.ParsePrivateKeys([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	b.key = keys[0]
	config := "version: 1\nkeys: [node.key]\n" + strings.ReplaceAll(policy, "URL", url)
	for name, text := range map[string]string{"node.key": key, "secretd.yml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(bin, "kbnode"), "secretd", "--config", filepath.Join(dir, "secretd.yml"), "--socket", b.socket)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answering, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			b.mu.Lock()
			fmt.Fprintln(&b.log, lines.Text())
			b.mu.Unlock()
			if strings.Contains(lines.Text(), "msg=answering") {
				close(answering)
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("kbnode secretd: %v\n%s", err, b.said())
		}
	})
	select {
	case <-answering:
	case <-ended:
		t.Fatalf("kbnode secretd ended:\n%s", b.said())
	case <-time.After(patience):
		t.Fatal("kbnode secretd does not answer")
	}
	return b
}

func (b *brokerProcess) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// seal seals a value for the broker's node.
func (b *brokerProcess) seal(t *testing.T, name, value, pipeline string, change func(*secrets.Secret), recipients ...age.Recipient) string {
	t.Helper()
	s := &secrets.Secret{
		Name: name, Value: []byte(value), Issued: time.Now().Add(-time.Hour), Expires: time.Now().Add(time.Hour), KeyID: "lab",
		Binding: secrets.Binding{Organization: engine.OrganizationID, Pipelines: []string{pipeline}},
	}
	if change != nil {
		change(s)
	}
	if recipients == nil {
		recipients = []age.Recipient{b.key.Public.Recipient}
	}
	text, err := secrets.Seal(s, recipients)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// job runs one command in a build of a pipeline and returns its log.
func (r *rig) job(pipeline, command string, env map[string]string) (engine.Job, string) {
	r.t.Helper()
	b, err := r.Engine.CreateBuild(pipeline, engine.NewBuild{Env: env, Message: command})
	if err != nil {
		r.t.Fatal(err)
	}
	return r.ended(b)
}

// ended waits for a build of one job and returns it with its log.
func (r *rig) ended(b engine.Build) (engine.Job, string) {
	r.t.Helper()
	b = r.wait(b)
	return b.Jobs[0], r.log(b.Jobs[0])
}

// log is a job's, whole.
func (r *rig) log(j engine.Job) string {
	r.t.Helper()
	log, err := r.Engine.Log(j.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	text, err := io.ReadAll(log)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// steps makes a pipeline of one step, which runs $COMMAND.
func (r *rig) steps(slug string) engine.Pipeline {
	r.t.Helper()
	p, err := r.Engine.CreatePipeline(engine.Pipeline{
		Slug: slug, SkipCheckout: true, Configuration: "steps: [{command: 'sh -c \"$$COMMAND\"', key: post, agents: {queue: cpu}}]",
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

const oidcPolicy = "oidc: {issuer: URL, organizations: [" + engine.OrganizationID + "]}\n"

// A secret reaches the step that may have it, and its log in no form.
func TestSecretReachesItsStep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := startBroker(t, r, oidcPolicy)
	p := r.steps("post-results")
	const first, second = "kbcanary-first-line-7f3a", "kbcanary second line/9c2e"
	value := first + "\n" + second + "\n"
	script := `set -e
kbgen secret get DEPLOY_KEY --socket ` + b.socket + ` > value
wc -c < value
cat value; head -1 value; base64 -w0 value; echo; base64 -w0 < value | tr '+/' '-_'; echo
kbgen secret get DEPLOY_KEY --socket ` + b.socket + ` -- sh -c 'stat -L -c "mode %a on $(stat -f -c %T "$DEPLOY_KEY_FILE")" "$DEPLOY_KEY_FILE"; cmp "$DEPLOY_KEY_FILE" value && echo the same; echo "$DEPLOY_KEY_FILE" > path; env | grep -c kbcanary || true'
test ! -e "$(cat path)" && echo gone; rm value
kbgen secret get DEPLOY_KEY --socket ` + b.socket + ` -- sh -c 'echo "$DEPLOY_KEY_FILE" > path; test -e "$DEPLOY_KEY_FILE" && kill -9 $PPID' || true
test ! -e "$(cat path)" && ! ls /dev/shm/kbgen-* 2>&1 && echo gone after a kill
kbgen secret get DEPLOY_KEY --socket ` + b.socket + ` -- sh -c 'exit 7' || echo status $?
echo done`
	job, log := r.job(p.Slug, script, map[string]string{
		"COMMAND": script, "DEPLOY_KEY_KBSEC": b.seal(t, "DEPLOY_KEY", value, p.ID, func(s *secrets.Secret) {
			s.Steps, s.Refs, s.Sources = []string{"post"}, []string{"refs/heads/main"}, []string{"api"}
		}),
	})
	for _, want := range []string{fmt.Sprint(len(value)), "mode 400 on tmpfs", "the same", "gone", "gone after a kill", "status 7", "done", "[REDACTED]"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	for _, form := range []string{first, second, base64.StdEncoding.EncodeToString([]byte(value)), base64.URLEncoding.EncodeToString([]byte(value)), "kbcanary"} {
		if strings.Contains(log, form) {
			t.Errorf("the log holds %q", form)
		}
	}
	if *job.ExitStatus != 0 {
		t.Errorf("exit status %d:\n%s", *job.ExitStatus, log)
	}
	waitFor(t, "the broker's log to say what it gave", func() bool { return strings.Count(b.said(), "msg=given") >= 4 })
	said := b.said()
	if want := regexp.MustCompile(`msg=given uid=\d+ pid=\d+ name=DEPLOY_KEY job=` + job.ID + ` pipeline=` + p.ID + ` step=post`); len(want.FindAllString(said, -1)) != 4 {
		t.Errorf("the broker's log does not say four times who was given what:\n%s", said)
	}
	if strings.Contains(said, "kbcanary") || strings.Contains(said, "eyJ") {
		t.Errorf("the broker's log holds a value or a token:\n%s", said)
	}
}

// Every refusal says which one it is, to the step and in the broker's log.
func TestSecretRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := startBroker(t, r, oidcPolicy)
	p, stranger := r.steps("post-results"), r.steps("somebodys-pull-requests")
	const value = "kbcanary-value-55aa"
	other, _, err := secrets.GenerateKey(secrets.Hybrid)
	if err != nil {
		t.Fatal(err)
	}
	flipped := func(text string) string {
		raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(text, secrets.Prefix))
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)-30] ^= 1
		return secrets.Prefix + base64.RawURLEncoding.EncodeToString(raw)
	}
	good := b.seal(t, "NPM_TOKEN", value, p.ID, nil)
	get := "kbgen secret get NPM_TOKEN --socket " + b.socket
	told := map[string]int{}
	for _, tt := range []struct {
		what, pipeline, command, envelope, want string
	}{
		{"wrong-pipeline", stranger.Slug, get, good, "wrong-pipeline: got \"" + stranger.ID + "\", want " + p.ID},
		{"expired", p.Slug, get, b.seal(t, "NPM_TOKEN", value, p.ID, func(s *secrets.Secret) { s.Expires = time.Now().Add(-time.Minute) }), "expired: it ended "},
		{"renamed", p.Slug, get, b.seal(t, "OTHER_TOKEN", value, p.ID, nil), "renamed: it was sealed as OTHER_TOKEN"},
		{"altered", p.Slug, get, flipped(good), "altered: its content is not as it was sealed"},
		{"unknown-recipient", p.Slug, get, b.seal(t, "NPM_TOKEN", value, p.ID, nil, other.Public.Recipient), "unknown-recipient: it is sealed for one hybrid key"},
		{"wrong-step", p.Slug, get, b.seal(t, "NPM_TOKEN", value, p.ID, func(s *secrets.Secret) { s.Steps = []string{"release"} }), `wrong-step: got "post", want release`},
		{"wrong-ref", p.Slug, get, b.seal(t, "NPM_TOKEN", value, p.ID, func(s *secrets.Secret) { s.Refs = []string{"refs/tags/v1"} }), `wrong-ref: got "refs/heads/main"`},
		{"unproved", p.Slug, get + " --no-token", good, "unproved: got no token"},
		{"unproved", p.Slug, get + " --audience sts.amazonaws.com", good, "unproved: the token is not believed"},
		{"malformed", p.Slug, get, "kbsec1:!!!!", "malformed: got what is no base64url"},
	} {
		command := tt.command + ` || echo "status $?"`
		_, log := r.job(tt.pipeline, command, map[string]string{"COMMAND": command, "NPM_TOKEN_KBSEC": tt.envelope})
		if !strings.Contains(log, tt.want) || !strings.Contains(log, "status 1") || strings.Contains(log, value) {
			t.Errorf("%s: the log lacks %q or holds the value:\n%s", tt.what, tt.want, log)
		}
		// It is written before the answer, and comes through a pipe of its own.
		waitFor(t, "the broker's log to say "+tt.what, func() bool { return strings.Count(b.said(), "reason="+tt.what) > told[tt.what] })
		told[tt.what]++
	}
	if strings.Contains(b.said(), value) || strings.Contains(b.said(), "msg=given") {
		t.Errorf("the broker has given something:\n%s", b.said())
	}
}

// Without tokens, a node gives only what all that may run on it may have.
func TestSecretsOfANodeWithoutTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, second := r.steps("post-results"), r.steps("releases")
	b := startBroker(t, r, fmt.Sprintf("host: {organization: %s, pipelines: [%s, %s]}\n", engine.OrganizationID, p.ID, second.ID))
	get := "kbgen secret get NPM_TOKEN --no-token --socket " + b.socket + ` | sha256sum | cut -c1-8 || echo "status $?"`
	both := func(s *secrets.Secret) { s.Pipelines = []string{p.ID, second.ID} }
	for _, tt := range []struct{ envelope, want string }{
		{b.seal(t, "NPM_TOKEN", "kbcanary-value", "", both), "bda470c7"},
		{b.seal(t, "NPM_TOKEN", "kbcanary-value", p.ID, nil), "wrong-pipeline"},
		{b.seal(t, "NPM_TOKEN", "kbcanary-value", "", func(s *secrets.Secret) { both(s); s.Steps = []string{"post"} }), "unproved: it is bound to queues, steps, refs or sources"},
	} {
		if _, log := r.job(p.Slug, get, map[string]string{"COMMAND": get, "NPM_TOKEN_KBSEC": tt.envelope}); !strings.Contains(log, tt.want) {
			t.Errorf("the log lacks %q:\n%s", tt.want, log)
		}
	}
}

// Pipelines with secrets in the old formats get them by the hooks that kbgen
// prints: where they are allowed, and nowhere else.
func TestOldSecretsByHook(t *testing.T) {
	t.Parallel()
	const repository, value = "https://git.example/a/b.git", "kbcanary-old-1c44\nkbcanary-second-line-8d"
	r := newRig(t)
	p, err := r.Engine.CreatePipeline(engine.Pipeline{
		Slug: "coverage", Repository: repository, SkipCheckout: true, Configuration: "steps: [{command: 'sh -c \"$$COMMAND\"', key: post, agents: {queue: cpu}}]",
	})
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(root, "secrets", "legacy", "testdata", "private.pem"))
	if err != nil {
		t.Fatal(err)
	}
	b := startBrokerWith(t, r.URL(), string(key), oidcPolicy+"old: {pipelines: ["+p.ID+"], refs: [refs/heads/main], steps: [post]}\n")
	for _, name := range []string{"environment", "pre-command"} {
		args := []string{"secret", "hook", name, "--socket", b.socket}
		if name == "environment" {
			args = append(args, "--allow", p.ID+"="+repository)
		}
		o := command(t, t.Context(), nil, "", filepath.Join(bin, "kbgen"), args...)
		o.want(t, 0, "#!/bin/bash")
		if err := os.WriteFile(filepath.Join(r.dir, "hooks", name), []byte(o.stdout), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sealed, err := legacy.SealV1(rand.Reader, &b.key.RSA.PublicKey, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	script := `printf %s "$CODECOV_TOKEN" | sha256sum | cut -c1-8; echo "$CODECOV_TOKEN"; printf %s "$CODECOV_TOKEN" | base64 -w0; echo
echo "ciphertexts $(env | grep -c '^SECRET_CODECOV_TOKEN=.\|^CRYPTIC[A-Z_]*=.')" "api ${BUILDKITE_AGENT_JOB_API_SOCKET:-off}" "other $SECRET_SANTA"`
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(value)))[:8]
	empty := fmt.Sprintf("%x", sha256.Sum256(nil))[:8]
	env := func(more ...string) map[string]string {
		m := map[string]string{"COMMAND": script, "SECRET_CODECOV_TOKEN": sealed, "CRYPTIC_ADHOC_SECRET_X": sealed, "SECRET_SANTA": "not encrypted"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	for _, tt := range []struct {
		what  string
		build engine.NewBuild
		wants []string
		fails bool
	}{
		{"as allowed", engine.NewBuild{Env: env()}, []string{sum, "[REDACTED]", "ciphertexts 0", "api off", "other not encrypted"}, false},
		{"somebody's pull request", engine.NewBuild{Env: env(), PullRequestID: 7, PullRequestRepo: "https://git.example/c/b.git"}, []string{empty, "no secrets: this builds a pull request", "ciphertexts 0"}, false},
		{"a submission", engine.NewBuild{Env: env(schema.EnvUntrusted, "true")}, []string{empty, "no secrets: this step runs what nobody trusts", "ciphertexts 0", "api off"}, false},
		{"another branch", engine.NewBuild{Branch: "feature", Env: env()}, []string{"+++ kbgen: a secret of this job could not be opened", "wrong-ref"}, true},
		{"a changed text", engine.NewBuild{Env: env("SECRET_CODECOV_TOKEN", "AAAA"+sealed[4:])}, []string{"+++ kbgen: a secret of this job could not be opened", "unknown-recipient"}, true},
		{"a name that changes programs", engine.NewBuild{Env: env("SECRET_LD_PRELOAD", sealed)}, []string{"name: got LD_PRELOAD"}, true},
	} {
		build, err := r.Engine.CreateBuild(p.Slug, tt.build)
		if err != nil {
			t.Fatal(err)
		}
		j, log := r.ended(build)
		for _, want := range tt.wants {
			if !strings.Contains(log, want) {
				t.Errorf("%s: the log lacks %q:\n%s", tt.what, want, log)
			}
		}
		if strings.Contains(log, "kbcanary") || strings.Contains(log, base64.StdEncoding.EncodeToString([]byte(value))) {
			t.Errorf("%s: the log holds the value:\n%s", tt.what, log)
		}
		if j.ExitStatus == nil || (*j.ExitStatus != 0) != tt.fails {
			t.Errorf("%s: exit status %v:\n%s", tt.what, j.ExitStatus, log)
		}
	}

	// Another pipeline may name any repository; its job gets nothing.
	stranger, err := r.Engine.CreatePipeline(engine.Pipeline{
		Slug: "stranger", Repository: repository, SkipCheckout: true, Configuration: "steps: [{command: 'sh -c \"$$COMMAND; kbgen secret get CODECOV_TOKEN --old --socket " + b.socket + "\"', agents: {queue: cpu}, env: {SECRET_CODECOV_TOKEN: \"" + sealed + "\"}}]",
	})
	if err != nil {
		t.Fatal(err)
	}
	build, err := r.Engine.CreateBuild(stranger.Slug, engine.NewBuild{Env: env()})
	if err != nil {
		t.Fatal(err)
	}
	if _, log := r.ended(build); !strings.Contains(log, empty) || !strings.Contains(log, "its repository is not allowed to have any here") || strings.Contains(log, "kbcanary") {
		t.Errorf("another pipeline:\n%s", log)
	}
	ask := `SECRET_CODECOV_TOKEN=` + sealed + ` kbgen secret get CODECOV_TOKEN --old --socket ` + b.socket + ` || true`
	if _, log := r.job(stranger.Slug, ask, map[string]string{"COMMAND": ask}); !strings.Contains(log, "wrong-pipeline: ") {
		t.Errorf("another pipeline that asks by itself:\n%s", log)
	}
}

// The image pipeline's token reaches docker's login from either store, and nothing
// that runs before it, no argument and no log.
func TestSecretOfImagePipeline(t *testing.T) {
	t.Parallel()
	const value = "kbcanary-registry-token-41d7"
	tools := t.TempDir()
	for name, script := range map[string]string{
		"go": "mkdir -p image; : > image/kbrun",
		"docker": `case $1 in
login) cat > "$RECORD.token"; echo "$* config $DOCKER_CONFIG" > "$RECORD.login"; : > "$DOCKER_CONFIG/config.json" ;;
image) echo base@sha256:0 ;;
push) test -e "$DOCKER_CONFIG/config.json"; echo "pushed $2" ;;
esac`,
	} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\nset -e\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, func(o *local.Options) {
		o.AgentPath = append([]string{tools}, o.AgentPath...)
		o.Secrets = map[string]string{"REGISTRY_TOKEN": value, "OTHER_TOKEN": "kbcanary-other"}
	})
	if err := r.StartAgents("images", 2); err != nil {
		t.Fatal(err)
	}
	b := startBroker(t, r, oidcPolicy)
	for _, store := range []string{"buildkite", "kbsec1"} {
		p, err := r.Engine.CreatePipeline(engine.Pipeline{
			Slug: "image-" + store, SkipCheckout: true,
			Configuration: "steps: [{command: 'kbgen upload image --registry-secret " + store + ":REGISTRY_TOKEN', agents: {queue: bootstrap}}]",
		})
		if err != nil {
			t.Fatal(err)
		}
		record := filepath.Join(t.TempDir(), "docker")
		build, err := r.Engine.CreateBuild(p.Slug, engine.NewBuild{Env: map[string]string{
			"RECORD": record, schema.EnvBroker: b.socket, "REGISTRY_TOKEN_KBSEC": b.seal(t, "REGISTRY_TOKEN", value, p.ID, func(s *secrets.Secret) {
				s.Steps = []string{"image-cuda", "image-rocm"}
			}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		build = r.wait(build)
		if build.State != engine.BuildPassed || len(build.Jobs) != 3 {
			t.Errorf("%s: build %s, %d jobs", store, build.State, len(build.Jobs))
		}
		pushed := 0
		for _, j := range build.Jobs {
			log := r.log(j)
			if strings.Contains(log, "kbcanary") {
				t.Errorf("%s: the log of %s holds the value", store, j.StepKey)
			}
			if strings.Contains(log, "pushed ghcr.io/gpu-mode/kbgen-runner:") {
				pushed++
			}
			if build.State != engine.BuildPassed {
				t.Logf("%s:\n%s", j.StepKey, log)
			}
		}
		token, _ := os.ReadFile(record + ".token")
		login, _ := os.ReadFile(record + ".login")
		words, config, _ := strings.Cut(strings.TrimSpace(string(login)), " config ")
		if pushed != 2 || string(token) != value || words != "login ghcr.io --username gpu-mode --password-stdin" {
			t.Errorf("%s: %d pushed, docker's arguments %q, %d bytes of token, want 2, and %d", store, pushed, words, len(token), len(value))
		}
		if _, err := os.Stat(config); config == "" || err == nil {
			t.Errorf("%s: docker's configuration %q is left", store, config)
		}
	}
}

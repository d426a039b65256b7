package e2e

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/secrets"
)

// What is planted in a submission: none of it is anybody's business but the
// node's.
const (
	canaryCode = "kbcanary-code-5b7e91"
	canaryName = "kbcanary_name_41d0c2"
	canarySeed = 7312990144221907
)

var canaries = []string{canaryCode, canaryName, fmt.Sprint(canarySeed)}

// newSealingRig is a rig whose node has a broker, and a hook that says where it
// listens.
func newSealingRig(t *testing.T, policy string) (*rig, *brokerProcess) {
	t.Helper()
	r := newRig(t)
	p, err := r.Engine.Pipeline("kernelbot")
	if err != nil {
		t.Fatal(err)
	}
	_, line, err := secrets.GenerateKey(secrets.X25519)
	if err != nil {
		t.Fatal(err)
	}
	b := startBrokerWith(t, r.URL(), line+"\n", strings.ReplaceAll(policy, "PIPELINE", p.ID))
	hook := "#!/bin/sh\nexport " + schema.EnvBroker + "=" + b.socket + "\n"
	if err := os.WriteFile(filepath.Join(r.dir, "hooks", "environment"), []byte(hook), 0o700); err != nil {
		t.Fatal(err)
	}
	return r, b
}

// sealFile writes what kblaunch --seal reads, for queue cpu.
func (r *rig) sealFile(key *secrets.PrivateKey, more string) string {
	r.t.Helper()
	return r.sealFileOf("cpu", key, more)
}

func (r *rig) sealFileOf(queue string, key *secrets.PrivateKey, more string) string {
	r.t.Helper()
	p, err := r.Engine.Pipeline("kernelbot")
	if err != nil {
		r.t.Fatal(err)
	}
	dir := r.t.TempDir()
	line := secrets.Recipient{Name: "lab-2026", Added: time.Now(), Key: key.Public}.String()
	text := fmt.Sprintf("version: 1\norganization: %s\npipeline: %s\nqueues:\n  %s: {recipients: recipients.txt%s}\n", engine.OrganizationID, p.ID, queue, more)
	for name, text := range map[string]string{"recipients.txt": line + "\n", "seal.yml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	return filepath.Join(dir, "seal.yml")
}

// queueID is the UUID of the queue cpu.
func (r *rig) queueID() string {
	r.t.Helper()
	for _, q := range r.Engine.Queues() {
		if q.Key == "cpu" {
			return q.ID
		}
	}
	r.t.Fatal("there is no queue cpu")
	return ""
}

// plantedTask is the tiny task with a submission's file of another name.
func plantedTask(t *testing.T) (dir, submission string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tiny)); err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ file, from, to string }{
		{"task.yml", "submission.py", canaryName + ".py"}, {"eval.py", "from submission", "from " + canaryName},
	} {
		path := filepath.Join(dir, change.file)
		text, err := os.ReadFile(path)
		if err == nil && !bytes.Contains(text, []byte(change.from)) {
			err = errors.New("there is nothing to change")
		}
		if err == nil {
			err = os.WriteFile(path, bytes.ReplaceAll(text, []byte(change.from), []byte(change.to)), 0o600)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	submission = filepath.Join(t.TempDir(), canaryName+".py")
	if err := os.WriteFile(submission, []byte("CANARY = '"+canaryCode+"'\n\n\ndef custom_kernel(n):\n    return n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, submission
}

// Nobody who may see a build reads the code, the file's name or the seed of a
// sealed submission, in no form. Of one that is not sealed, the same search
// finds all of them.
func TestSealedSubmission(t *testing.T) {
	t.Parallel()
	for _, sealed := range []bool{true, false} {
		t.Run(fmt.Sprintf("sealed=%v", sealed), func(t *testing.T) {
			t.Parallel()
			r, b := newSealingRig(t, oidcPolicy)
			dir, file := plantedTask(t)
			args := []string{"submit", dir, file, "--gpu", "CPU_BK", "--mode", "test"}
			if sealed {
				args = append(args, "--seal", r.sealFile(b.key, ", id: "+r.queueID()+", steps: [evaluate-cpu], refs: [refs/heads/main], sources: [api]"))
			}
			s := r.launch(args...)
			s.want(t, 0, "passed")
			r.leaderboard(dir, file, b, sealed)
			for _, build := range r.Engine.Builds(engine.BuildFilter{}) {
				if got := strings.HasPrefix(build.Env[schema.EnvPayload], secrets.Prefix); got != sealed {
					t.Errorf("build %d carries a sealed payload: %v", build.Number, got)
				}
			}
			places := r.everything()
			places["what kblaunch prints"] = []byte(s.stdout + s.stderr)
			places["what the broker says"] = []byte(b.said())
			found := map[string][]string{}
			for place, data := range places {
				for _, canary := range told(data) {
					found[canary] = append(found[canary], place)
				}
			}
			for _, canary := range canaries {
				switch in := found[canary]; {
				case sealed && len(in) > 0:
					t.Errorf("%s is told by %q", canary, in)
				case !sealed && len(in) == 0:
					t.Errorf("%s is found nowhere in %d places: the search does not see", canary, len(places))
				}
			}
			if sealed { // its log comes through a pipe of its own
				waitFor(t, "the broker's log to say what it gave", func() bool { return strings.Count(b.said(), "msg=given") >= 2 })
			}
			if given := strings.Count(b.said(), "msg=given"); sealed && given != 2 || !sealed && given != 0 {
				t.Errorf("the broker has opened %d payloads:\n%s", given, b.said())
			}
		})
	}
}

// leaderboard submits the task with a secret seed, as a backend does.
func (r *rig) leaderboard(dir, file string, b *brokerProcess, sealed bool) {
	r.t.Helper()
	def, err := task.LoadDir(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	seed := int64(canarySeed)
	payload, err := def.Payload(schema.File{Name: filepath.Base(file), Text: string(text)}, schema.ModeLeaderboard, nil, &seed)
	if err != nil {
		r.t.Fatal(err)
	}
	client, err := launcher.New(launcher.Options{BaseURL: r.URL() + "/", Token: r.APIToken(), Org: "gpu-mode", Pipeline: "kernelbot"})
	if err != nil {
		r.t.Fatal(err)
	}
	submission := launcher.Submission{Payload: payload, GPU: "CPU_BK", Queue: "cpu"}
	if sealed {
		submission.Seal = func(runID, encoded string) (string, error) { return r.seal(b.key.Public, runID, encoded) }
	}
	report, err := client.Submit(r.t.Context(), submission)
	if err != nil || report.Result.Outcome.Name != schema.OutcomePassed {
		r.t.Fatalf("%+v: %v", report, err)
	}
}

func (r *rig) seal(key *secrets.PublicKey, runID, encoded string) (string, error) {
	p, err := r.Engine.Pipeline("kernelbot")
	if err != nil {
		return "", err
	}
	binding := secrets.Binding{Organization: engine.OrganizationID, Pipelines: []string{p.ID}, Queues: []string{r.queueID()}}
	return secrets.SealPayload(encoded, runID, binding, secrets.Recipients{{Name: "lab-2026", Key: key}}, time.Now(), time.Hour)
}

// everything is what the stand-in has on disk, what its API and its page tell
// who may see builds, and what it keeps in memory of them, by place.
func (r *rig) everything() map[string][]byte {
	r.t.Helper()
	places := map[string][]byte{}
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			places[path], err = os.ReadFile(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the agent takes a job's files away
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	get := func(path string) {
		places["GET "+path] = r.get(path)
	}
	const org = "/v2/organizations/gpu-mode"
	for _, path := range []string{"/v2/builds", org, org + "/builds", org + "/pipelines", org + "/pipelines/kernelbot", org + "/pipelines/kernelbot/builds", org + "/agents", org + "/clusters", "/", "/gpu-mode/kernelbot/builds"} {
		get(path)
	}
	jobs := 0
	for _, b := range r.Engine.Builds(engine.BuildFilter{}) {
		memory, err := json.Marshal(b)
		if err != nil {
			r.t.Fatal(err)
		}
		places["memory of build "+fmt.Sprint(b.Number)] = memory
		page := fmt.Sprintf("/gpu-mode/kernelbot/builds/%d", b.Number)
		build := fmt.Sprintf("%s/pipelines/kernelbot/builds/%d", org, b.Number)
		for _, path := range []string{page, build, build + "/jobs", build + "/artifacts", build + "/annotations"} {
			get(path)
		}
		for _, j := range b.Jobs {
			jobs++
			get(page + "/jobs/" + j.ID)
			for _, what := range []string{"", "/env", "/log", "/log.txt", "/log.html", "/artifacts", "/annotations"} {
				get(build + "/jobs/" + j.ID + what)
			}
		}
		artifacts, err := r.Engine.BuildArtifacts(b.ID, true)
		if err != nil || len(artifacts) == 0 {
			r.t.Fatalf("build %d has %d artifacts: %v", b.Number, len(artifacts), err)
		}
		for _, a := range artifacts {
			if places["artifact "+a.ID], err = os.ReadFile(r.Engine.ArtifactFile(a.ID)); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if jobs < 4 {
		r.t.Fatalf("%d jobs were looked at, want two of each build", jobs)
	}
	return places
}

// get asks the stand-in with the API's token, which the page does not mind.
func (r *rig) get(path string) []byte {
	r.t.Helper()
	request, err := http.NewRequest(http.MethodGet, r.URL()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+r.APIToken())
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		r.t.Fatalf("GET %s: %s, %v\n%.300s", path, answer.Status, err, body)
	}
	return body
}

var encodedText = regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}={0,2}`)

// told lists the canaries that a text holds: as they are, in base64 wherever it
// begins, or in what base64 and zlib make of a payload.
func told(data []byte) (found []string) {
	text := html.UnescapeString(string(data))
	layers := []string{text}
	for _, encoded := range encodedText.FindAllString(text, -1) {
		encoded = strings.NewReplacer("-", "+", "_", "/", "=", "").Replace(encoded)
		for shift := range 4 { // it may begin anywhere in a longer word
			if raw, _ := base64.RawStdEncoding.DecodeString(encoded[shift : len(encoded)-(len(encoded)-shift)%4]); len(raw) > 0 {
				layers = append(layers, string(raw))
				if plain := inflated(raw); plain != "" {
					layers = append(layers, plain)
				}
			}
		}
	}
	for _, canary := range canaries {
		for _, layer := range layers {
			if strings.Contains(layer, canary) {
				found = append(found, canary)
				break
			}
		}
	}
	return found
}

// inflated is what zlib makes of the bytes, as far as it goes.
func inflated(raw []byte) string {
	z, err := zlib.NewReader(bytes.NewReader(raw))
	if err != nil {
		return ""
	}
	plain, _ := io.ReadAll(io.LimitReader(z, 16<<20)) // what was cut off is not needed
	return string(plain)
}

// Whoever has to act is told what was wrong, and nothing runs. What another
// machine may open is tried again.
func TestSealedRefusals(t *testing.T) {
	t.Parallel()
	r, b := newSealingRig(t, oidcPolicy)
	other, _, err := secrets.GenerateKey(secrets.X25519)
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Engine.CreatePipeline(engine.Pipeline{
		Slug: "judge", SkipCheckout: true, Configuration: "steps: [{command: 'kbrun evaluate --gpu-vendor none $$WITH', key: evaluate, agents: {queue: cpu}}]",
	})
	if err != nil {
		t.Fatal(err)
	}
	const run = "sub-1-CPU_BK-77"
	plain := encoded(t, "test")
	seal := func(to *secrets.PrivateKey, change func(*secrets.Binding, *string, *time.Time)) string {
		binding, name, now := secrets.Binding{Organization: engine.OrganizationID, Pipelines: []string{p.ID}}, run, time.Now()
		if change != nil {
			change(&binding, &name, &now)
		}
		text, err := secrets.SealPayload(plain, name, binding, secrets.Recipients{{Name: "lab-2026", Key: to.Public}}, now, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good := seal(b.key, nil)
	for _, tt := range []struct {
		what, payload, outcome, words string
		env                           []string
	}{
		{"as it should be", good, schema.OutcomePassed, "", nil},
		{"the payload of another run", seal(b.key, func(_ *secrets.Binding, name *string, _ *time.Time) { *name = "sub-2" }), schema.OutcomeBadPayload, `wrong-run: got "` + run + `", want sub-2`, nil},
		{"expired", seal(b.key, func(_ *secrets.Binding, _ *string, now *time.Time) { *now = now.Add(-2 * time.Hour) }), schema.OutcomeBadPayload, "expired: it ended ", nil},
		{"another queue", seal(b.key, func(binding *secrets.Binding, _ *string, _ *time.Time) { binding.Queues = []string{p.ID} }), schema.OutcomeBadPayload, "wrong-queue: got ", nil},
		{"altered", good[:len(good)-8] + "AAAAAAAA", schema.OutcomeBadPayload, "altered: ", nil},
		{"renamed", b.seal(t, "NPM_TOKEN", plain, p.ID, nil), schema.OutcomeBadPayload, "renamed: it was sealed as NPM_TOKEN", nil},
		{"cut", "kbsec1:!", schema.OutcomeBadPayload, "malformed: ", nil},
		{"another node's", seal(other, nil), schema.OutcomeMachine, "unknown-recipient: it is sealed for one X25519 key", nil},
		{"no broker", good, schema.OutcomeMachine, "the node's broker does not answer: /nowhere/s: no such file", []string{"WITH", "--broker /nowhere/s"}},
	} {
		env := map[string]string{schema.EnvRunID: run, schema.EnvPayload: tt.payload}
		for i := 0; i < len(tt.env); i += 2 {
			env[tt.env[i]] = tt.env[i+1]
		}
		j, log := r.job(p.Slug, tt.what, env)
		build := r.newest()
		status := schema.NewOutcome(tt.outcome, "").ExitStatus()
		if got := build.MetaData["outcome:"+run]; got != tt.outcome || *j.ExitStatus != status || !strings.Contains(log, tt.words) {
			t.Errorf("%s: outcome %q and exit status %d, want %s and %d, and %q in the log:\n%s", tt.what, got, *j.ExitStatus, tt.outcome, status, tt.words, log)
		}
		if ran := strings.Contains(log, "--- Phase"); ran != (tt.outcome == schema.OutcomePassed) {
			t.Errorf("%s: a phase began: %v\n%s", tt.what, ran, log)
		}
	}
}

// A payload of several chunks is sealed, travels and opens like a small one, on
// a node that has no tokens, too.
func TestLargeSealedSubmission(t *testing.T) {
	t.Parallel()
	r, b := newSealingRig(t, "host: {organization: "+engine.OrganizationID+", pipelines: [PIPELINE]}\n")
	file := filepath.Join(t.TempDir(), "large.py")
	if err := os.WriteFile(file, []byte("DATA = '"+noise(300_000)+"'\n\n\ndef custom_kernel(n):\n    return n + len(DATA) - 400000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.launch("submit", tiny, file, "--gpu", "CPU_BK", "--mode", "test", "--seal", r.sealFile(b.key, "")).want(t, 0, "passed")
	env := r.newest().Env
	if n := env[schema.EnvPayloadChunks]; n == "" || n == "1" || !strings.HasPrefix(env[schema.EnvPayloadChunk(0)], secrets.Prefix) {
		t.Errorf("%s = %q, want some, sealed", schema.EnvPayloadChunks, n)
	}
	s := r.submit("right.py", "--seal", r.sealFile(b.key, ", steps: [evaluate-cpu]"), "--mode", "test")
	if s.status != 3 || !strings.Contains(s.stderr, "unproved") {
		t.Errorf("bound to a step on a node without tokens: status %d\n%s%s", s.status, s.stdout, s.stderr)
	}
}

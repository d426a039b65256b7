package agent

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

var agentPath = flag.String("agent", "../../bin/buildkite-agent", "the buildkite-agent to drive")

// binary returns the absolute path of the agent, or skips the test.
func binary(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(*agentPath)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no agent to drive: %v; build it with: sh tools/agent.sh", err)
	}
	return path
}

// An artifactServer is as much of the agent API as "artifact upload" needs. It
// keeps what it is told by artifact id, which is the path here.
type artifactServer struct {
	*httptest.Server

	mu     sync.Mutex
	bodies map[string]string
	states map[string]string
	faults []error
}

const token = "job-token-of-the-test"

func newArtifactServer(t *testing.T) *artifactServer {
	s := &artifactServer{bodies: map[string]string{}, states: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v3/jobs/job-1/artifacts", s.handle(s.create))
	mux.HandleFunc("PUT /v3/jobs/job-1/artifacts", s.handle(s.update))
	mux.HandleFunc("POST /upload", s.handle(s.upload))
	mux.HandleFunc("/", s.handle(func(_ http.ResponseWriter, r *http.Request) error {
		return errors.New("unexpected request")
	}))
	s.Server = httptest.NewUnstartedServer(mux)
	s.Start() // after s.Server is set: the handlers read its URL
	t.Cleanup(s.Close)
	return s
}

// handle answers a fault with 422, which the agent takes for final.
func (s *artifactServer) handle(f func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := f(w, r); err != nil {
			s.faults = append(s.faults, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err))
			http.Error(w, `{"message":"refused"}`, http.StatusUnprocessableEntity)
		}
	}
}

func (s *artifactServer) create(w http.ResponseWriter, r *http.Request) error {
	if got, want := r.Header.Get("Authorization"), "Token "+token; got != want {
		return errors.New("wrong Authorization")
	}
	var batch struct {
		ID        string
		Artifacts []struct{ Path string }
	}
	if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
		return err
	}
	ids := []string{}
	instructions := map[string]any{}
	for _, a := range batch.Artifacts {
		if _, ok := s.states[a.Path]; ok {
			return fmt.Errorf("%q comes twice", a.Path)
		}
		s.states[a.Path] = "new"
		ids = append(ids, a.Path)
		instructions[a.Path] = map[string]any{
			"data": map[string]string{"id": a.Path},
			"action": map[string]string{
				"url": s.URL, "path": "/upload", "method": "POST", "file_input": "file",
			},
		}
	}
	return json.NewEncoder(w).Encode(map[string]any{
		"id": batch.ID, "artifact_ids": ids, "per_artifact_instructions": instructions,
	})
}

func (s *artifactServer) upload(_ http.ResponseWriter, r *http.Request) error {
	file, _, err := r.FormFile("file")
	if err != nil {
		return err
	}
	body, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	s.bodies[r.FormValue("id")] = string(body)
	return nil
}

func (s *artifactServer) update(_ http.ResponseWriter, r *http.Request) error {
	var u struct {
		Artifacts []struct{ ID, State string }
	}
	if err := json.NewDecoder(r.Body).Decode(&u); err != nil {
		return err
	}
	for _, a := range u.Artifacts {
		s.states[a.ID] = a.State
	}
	return nil
}

// files makes files that hold their own names, in a new directory.
func files(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The paths the agent posts are those the patterns mean, whatever they are
// made of, and each file's bytes arrive under its path.
func TestArtifactUpload(t *testing.T) {
	bin := binary(t)
	abs := files(t, "1.log", "2.log", "2.txt", "sub/3.log")
	home := files(t, "h/result.json")
	work := files(t,
		"result.json", "a/1.json", "a/b/c/2.json", "a/b/.3.json", "a/b/2.txt",
		"b/x.txt", "b/y.txt", "b/z.txt", "odd/a b#c%20é.txt", "odd/{1}.txt",
		"real/1.dat")
	if err := os.Symlink("real", filepath.Join(work, "link")); err != nil {
		t.Fatal(err)
	}
	abs, home = resolved(t, abs), resolved(t, home)

	for _, tc := range []struct {
		name, pattern string
		flags         []string
		want          map[string]string // path to content
	}{
		{name: "plain", pattern: "result.json", want: map[string]string{"result.json": "result.json"}},
		{name: "no match", pattern: "nothing/**/*;none.json", want: map[string]string{}},
		{
			name: "globs", pattern: "a/**/*.json;b/{x,y}.txt;" + abs + "/*.log",
			want: map[string]string{
				"a/1.json": "a/1.json", "a/b/c/2.json": "a/b/c/2.json", "a/b/.3.json": "a/b/.3.json",
				"b/x.txt": "b/x.txt", "b/y.txt": "b/y.txt",
				abs[1:] + "/1.log": "1.log", abs[1:] + "/2.log": "2.log",
			},
		},
		{
			name: "overlap", pattern: "b/*; b/x.txt ;./b/[xyz].txt",
			want: map[string]string{"b/x.txt": "b/x.txt", "b/y.txt": "b/y.txt", "b/z.txt": "b/z.txt"},
		},
		{
			name: "odd names", pattern: `odd/*#*;odd/\{?\}.txt`,
			want: map[string]string{"odd/a b#c%20é.txt": "odd/a b#c%20é.txt", "odd/{1}.txt": "odd/{1}.txt"},
		},
		{name: "links left alone", pattern: "*/1.dat", want: map[string]string{"real/1.dat": "real/1.dat"}},
		{
			name: "links followed", pattern: "*/1.dat", flags: []string{"--glob-resolve-follow-symlinks"},
			want: map[string]string{"real/1.dat": "real/1.dat", "link/1.dat": "real/1.dat"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newArtifactServer(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, bin, append(slices.Concat([]string{"artifact", "upload"}, tc.flags), tc.pattern)...)
			cmd.Dir = work
			cmd.Env = []string{
				"HOME=" + home,
				"PATH=" + os.Getenv("PATH"),
				"BUILDKITE_AGENT_ENDPOINT=" + s.URL + "/v3",
				"BUILDKITE_AGENT_ACCESS_TOKEN=" + token,
				"BUILDKITE_JOB_ID=job-1",
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("artifact upload %q: %v\n%s", tc.pattern, err, out)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if err := errors.Join(s.faults...); err != nil {
				t.Error(err)
			}
			if !maps.Equal(s.bodies, tc.want) {
				t.Errorf("artifact upload %q sent %q, want %q", tc.pattern, s.bodies, tc.want)
			}
			for path, state := range s.states {
				if state != "finished" {
					t.Errorf("%q ended %q, want finished", path, state)
				}
			}
		})
	}
}

// A pattern that cannot be parsed fails the command and sends nothing.
func TestArtifactUploadRefusesPattern(t *testing.T) {
	bin := binary(t)
	s := newArtifactServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "artifact", "upload", "{a,b")
	cmd.Dir = files(t, "a")
	cmd.Env = []string{
		"HOME=/nonexistent",
		"BUILDKITE_AGENT_ENDPOINT=" + s.URL + "/v3",
		"BUILDKITE_AGENT_ACCESS_TOKEN=" + token,
		"BUILDKITE_JOB_ID=job-1",
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || ctx.Err() != nil {
		t.Errorf("artifact upload {a,b = %v, want exit status 1\n%s", err, out)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.states) > 0 || len(s.faults) > 0 {
		t.Errorf("the server was called: %v, %v", s.states, s.faults)
	}
}

func resolved(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

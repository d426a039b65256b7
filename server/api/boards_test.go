package api_test

import (
	"archive/zip"
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/server/api"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

// taskFiles are a task's directory.
var taskFiles = map[string]string{
	"task.yml":     "lang: py\nconfig: {main: eval.py}\ndescription: adds\nfiles:\n  - {name: submission.py, source: \"@SUBMISSION@\"}\n  - {name: eval.py, source: eval.py}\ntests:\n  - {n: 3}\nbenchmarks:\n  - {n: 9}\ngpus: [H100]\n",
	"eval.py":      "print(1)\n",
	"unused/extra": "not named by the task\n",
}

// gitHub answers with archives of repositories: path below it → files.
func gitHub(t *testing.T, repositories map[string]map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		files, found := repositories[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		archive := zip.NewWriter(w)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			f, err := archive.Create(name)
			if err == nil {
				_, err = io.WriteString(f, files[name])
			}
			if err != nil {
				t.Error(err)
			}
		}
		if err := archive.Close(); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Kernelbot's update-problems makes and changes the boards of a repository; it keeps
// what the files do not mention.
func TestUpdateProblems(t *testing.T) {
	ctx := context.Background()
	competition := "name: a set\ndeadline: 2100-06-01\nproblems:\n  - {directory: add, name: add, gpus: [H100]}\n"
	repository := map[string]string{"kernels-main/problems/set.yaml": competition, "kernels-main/problems/other.yaml": strings.ReplaceAll(competition, "name: add", "name: add2"), "kernels-main/README.md": "x"}
	for name, text := range taskFiles {
		repository["kernels-main/problems/add/"+name] = text
	}
	with := func(name, text string) map[string]string {
		files := maps.Clone(repository)
		files[name] = text
		return files
	}
	github := gitHub(t, map[string]map[string]string{
		"/team/kernels/archive/main.zip":  repository,
		"/team/kernels/archive/later.zip": with("kernels-main/problems/set.yaml", strings.ReplaceAll(competition, "06-01", "07-01")),
		"/team/kernels/archive/wrong.zip": with("kernels-main/problems/set.yaml", strings.ReplaceAll(competition, "2100-06-01", "soon")),
		"/team/kernels/archive/out.zip":   with("kernels-main/problems/set.yaml", strings.ReplaceAll(competition, "directory: add", "directory: ../../..")),
		"/team/kernels/archive/none.zip":  {"kernels-main/README.md": "x"},
	})
	r := newRig(t, servertest.SQLite(t), func(o *api.Options) { o.GitHub = github })
	update := func(body map[string]any) answer { return r.ask(t, "admin", "POST", "/admin/update-problems", body) }
	if got := update(map[string]any{"repository": "team/kernels"}); got.status != 200 || !strings.Contains(got.body, `"created":["add2","add"]`) {
		t.Errorf("a repository: %d %s", got.status, got.body)
	}
	if _, err := r.s.SetBoard(ctx, "add", func(b *store.Board) error { b.Visibility = store.Closed; return nil }, store.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := update(map[string]any{"repository": "team/kernels", "branch": "later", "problem_set": "set"}); got.status != 200 || !strings.Contains(got.body, `"created":[],"updated":["add"]`) {
		t.Errorf("a later deadline: %d %s", got.status, got.body)
	}
	if b, err := r.s.Board(ctx, "add"); err != nil || b.Visibility != store.Closed || b.Deadline.Month() != 7 {
		t.Errorf("the board is %+v, %v, want it closed, until July", b, err)
	}
	for name, c := range map[string]struct {
		body map[string]any
		want string
	}{
		"a repository that is not there": {map[string]any{"repository": "team/none"}, "there is no such repository or branch"},
		"an address":                     {map[string]any{"repository": "http://127.0.0.1/x"}, "repository: got"},
		"a path upwards":                 {map[string]any{"repository": "team/kernels", "branch": "../../x"}, "want names without"},
		"another path upwards":           {map[string]any{"repository": "team/.."}, "want names without"},
		"a wrong deadline":               {map[string]any{"repository": "team/kernels", "branch": "wrong"}, "deadline: got"},
		"a task outside of it":           {map[string]any{"repository": "team/kernels", "branch": "out"}, "problems[0]"},
		"no competition":                 {map[string]any{"repository": "team/kernels", "branch": "none"}, "got no file problems/*.yaml"},
		"a set that is not there":        {map[string]any{"repository": "team/kernels", "problem_set": "*"}, "got no file problems/"},
		"a wrong visibility":             {map[string]any{"repository": "team/kernels", "visibility": "secret"}, "visibility: got"},
	} {
		if got := update(c.body); got.status != 400 || !strings.Contains(got.body, c.want) {
			t.Errorf("%s: %d %s, want 400 with %q", name, got.status, got.body, c.want)
		}
	}
	if got := r.ask(t, "ann", "POST", "/admin/update-problems", map[string]any{}); got.status != 403 {
		t.Errorf("as a user: %d, want 403", got.status)
	}
}

func TestBoardsOverHTTP(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	const path = "/api/v1/admin/boards/add"
	body := func(change map[string]any) map[string]any {
		b := map[string]any{"deadline": "2100-01-01T00:00:00Z", "files": taskFiles}
		maps.Copy(b, change)
		return b
	}
	other := maps.Clone(taskFiles)
	other["eval.py"] = "print(2)\n"
	upwards := map[string]string{"task.yml": strings.ReplaceAll(taskFiles["task.yml"], "source: eval.py", "source: ../../../etc/passwd")}
	for i, c := range []struct {
		as, method string
		body       any
		status     int
		want       string
	}{
		{"admin", "PUT", map[string]any{"files": taskFiles}, 400, "deadline: want one for a new board"},
		{"admin", "PUT", body(map[string]any{"files": map[string]string{}}), 400, "task.yml"},
		{"admin", "PUT", body(map[string]any{"files": upwards}), 400, "files: "},
		{"admin", "PUT", body(map[string]any{"files": map[string]string{"task.yml": strings.Repeat("x", 2_000_000)}}), 413, "body: want at most"},
		{"ann", "PUT", body(nil), 403, "for admins"},
		{"admin", "PUT", body(nil), 200, `"what":"created"`},
		{"admin", "PUT", body(nil), 200, `"what":"unchanged"`},
		{"admin", "PUT", map[string]any{"files": other, "reason": "a faster check"}, 200, `"what":"changed","changes":[{"field":"files"`},
		{"admin", "DELETE", nil, 204, ""},
		{"admin", "DELETE", nil, 404, "not found"},
	} {
		if got := r.ask(t, c.as, c.method, path, c.body); got.status != c.status || !strings.Contains(got.body, c.want) {
			t.Errorf("%d: %s as %s: %d %s, want %d with %q", i, c.method, c.as, got.status, got.body, c.status, c.want)
		}
	}
	r.ask(t, "ann", "POST", "/api/v1/submissions?board=sort&gpu=H100&mode=test", upload("a.py", "x = 1\n"))
	if got := r.ask(t, "admin", "DELETE", "/api/v1/admin/boards/sort", nil); got.status != 400 || !strings.Contains(got.body, "it has submissions: 1") {
		t.Errorf("deleting a board with submissions: %d %s, want 400", got.status, got.body)
	}
	if got := r.ask(t, "admin", "DELETE", "/api/v1/admin/boards/sort?force=true", nil); got.status != 204 {
		t.Errorf("deleting it with force: %d %s", got.status, got.body)
	}
}

// What is no archive is a fault of the download.
func TestUpdateProblemsWithoutAnArchive(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.Copy(w, bytes.NewReader([]byte("not a ZIP"))) }))
	defer s.Close()
	r := newRig(t, servertest.SQLite(t), func(o *api.Options) { o.GitHub = s.URL })
	if got := r.ask(t, "admin", "POST", "/admin/update-problems", map[string]any{"repository": "team/kernels"}); got.status != 500 || strings.Contains(got.body, "ZIP") {
		t.Errorf("got %d %s, want 500", got.status, got.body)
	}
}

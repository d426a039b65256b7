package web

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
)

// judged is what kbrun reports of an evaluation with an outcome.
func judged(p store.PlannedRun, outcome string) *schema.Result {
	r := result(p.GPU, 5000)
	if outcome != schema.OutcomePassed {
		r = wrong(p.GPU)
	} else if p.Mode == schema.ModeTest {
		r.Runs, r.Measurements = r.Runs[:1], nil
	}
	if r.Outcome = schema.NewOutcome(outcome, ""); r.Outcome.Retry {
		r.Success, r.Error, r.Runs, r.Measurements = false, r.Outcome.Text, nil, nil
	}
	return r
}

// submitted evaluates one submission of alice's and returns its id.
func (r *rig) submitted(mode, public, secret string) int64 {
	r.t.Helper()
	id := r.accept(store.Submission{Board: "sort", GPU: "H100", Mode: mode, UserID: alice, Fresh: true})
	r.evaluate(func(p store.PlannedRun) *schema.Result {
		if p.Secret {
			return judged(p, secret)
		}
		return judged(p, public)
	})
	return id
}

var rowState = regexp.MustCompile(`(?s)<th scope="row"><a href="(/s/\d+)">.*?<td><span class="state (\w+)[^"]*">([^<]*)</span>`)

// Every list of submissions, and the page of each, says how it came out.
func TestListsShowOutcomes(t *testing.T) {
	w := newRig(t)
	w.login(alice, "alice")
	w.login(boss, "Boss")
	w.save(board("sort", "H100"))
	const ranked, test = schema.ModeLeaderboard, schema.ModeTest
	want := map[string]string{}
	for _, c := range []struct{ mode, public, secret, want string }{
		{ranked, "passed", "passed", "good ranks"}, {test, "passed", "", "good passed"}, {test, "wrong", "", "bad wrong"}, {test, "timeout", "", "bad timeout"}, {test, "crashed", "", "bad crashed"},
		{test, "syntax-error", "", "bad syntax error"}, {ranked, "wrong", "wrong", "bad wrong"}, {ranked, "passed", "timeout", "bad wrong"}, {ranked, "passed", "ambiguous", "warn machine fault"}, {test, "harness-fault", "", "warn task fault"},
	} {
		want[submissionPath(w.submitted(c.mode, c.public, c.secret))] = c.want
	}
	want[submissionPath(w.accept(store.Submission{Board: "sort", GPU: "H100", Mode: test, UserID: alice, Fresh: true}))] = "busy waiting"
	for _, list := range []struct{ as, path string }{{boss, "/admin"}, {alice, "/u/" + alice}, {alice, "/b/sort/H100"}} {
		found := 0
		for _, row := range rowState.FindAllStringSubmatch(w.get(list.as, list.path), -1) {
			if got := row[2] + " " + row[3]; want[row[1]] != "" && got != want[row[1]] {
				t.Errorf("%s: %s is shown as %q, want %q", list.path, row[1], got, want[row[1]])
			}
			found++
		}
		if found < 10 {
			t.Errorf("%s lists %d submissions with a state, want at least 10", list.path, found)
		}
	}
	for path, state := range want {
		_, word, _ := strings.Cut(state, " ")
		if page := w.get(alice, path); !strings.Contains(page[:strings.Index(page, "<dl")], ">"+word+"</span>") {
			t.Errorf("the head of %s lacks %q", path, word)
		}
	}
	has(t, "a wrong one in a list", w.get(alice, "/u/"+alice), "The submission is not valid Python.", "The secret run did not pass; how it failed is not shown.", "It was not the submission's fault.")
}

// A submission that the machine failed says so, and can be run again.
func TestMachineFault(t *testing.T) {
	w := newRig(t)
	w.login(alice, "alice")
	w.login(boss, "Boss")
	sort := board("sort", "H100")
	w.save(sort)
	for _, c := range []struct{ public, secret, text string }{
		{"ambiguous", "passed", "The machine was too busy to measure times that hold."},
		{"passed", "ambiguous", "The secret run has no result: the machine could not run the evaluation."},
	} {
		path := submissionPath(w.submitted(schema.ModeLeaderboard, c.public, c.secret))
		page := w.get(alice, path)
		has(t, "a submission that the machine failed", page, "Not judged: a machine fault", c.text, "This was not your submission's fault, and it was not judged. Run it again.")
		if n := strings.Count(page, "Run again</button>"); n != 1 {
			t.Errorf("%s has %d buttons to run again, want 1", path, n)
		}
		lacks(t, "a submission that the machine failed", page, `class="problem"`, "Does not rank")
	}
	path := submissionPath(w.submitted(schema.ModeTest, "gpu-busy", ""))
	if a := w.post(alice, path, path+"/rerun", nil); a.StatusCode != http.StatusSeeOther {
		t.Errorf("running again: %d", a.StatusCode)
	}
	sort.Deadline = time.Now().Add(-time.Hour)
	w.save(sort)
	page := w.get(alice, path)
	has(t, "a machine's fault on a board that has ended", page, "The board has ended: only an admin may run it again.")
	lacks(t, "a machine's fault on a board that has ended", page, "Run again</button>")
	has(t, "an admin's view of it", w.get(boss, path), "Run again</button>")
}

// A board that has ended takes nothing from users, and has no form for them.
func TestBoardThatHasEnded(t *testing.T) {
	w := newRig(t)
	w.login(alice, "alice")
	w.login(boss, "Boss")
	sort := board("sort", "H100")
	sort.Deadline = time.Now().Add(-26 * time.Hour)
	w.save(sort)
	for _, as := range []string{"", alice} {
		page := w.get(as, "/b/sort")
		has(t, "a board that has ended", page, ">ended</span>", "This board ended", "It takes no more submissions.", sort.Deadline.UTC().Format("2 January 2006, 15:04"))
		lacks(t, "a board that has ended", page, "multipart/form-data", `href="#submit"`, "popcorn-cli submit", "Log in to submit", "closed")
	}
	has(t, "an admin's view of it", w.get(boss, "/b/sort"), "As an admin you may still submit; such a submission does not rank.", "multipart/form-data")
}

// The commands name a file of the task's language.
func TestCommandsNameTheLanguage(t *testing.T) {
	w := newRig(t)
	sort, cpp := board("sort", "H100"), board("cpp", "H100")
	cpp.Task.Lang, cpp.Task.Config.Main, cpp.Task.Config.Sources = schema.LangCUDA, "", []string{"submission.cu"}
	cpp.Task.Files[0].Name = "submission.cu"
	w.save(sort, cpp)
	for name, file := range map[string]string{"sort": "submission.py", "cpp": "submission.cu"} {
		has(t, "board "+name, w.get("", "/b/"+name), "--mode leaderboard "+file, "-F file=@"+file)
	}
}

// Before somebody submits, the form says that no machine will take it.
func TestBoardWithoutAMachine(t *testing.T) {
	w := newRig(t)
	w.login(alice, "alice")
	w.save(board("sort", "B200", "H100"))
	w.queue.none["B200"] = true
	has(t, "the form", w.get(alice, "/b/sort/B200"), "No machine serves <bdi>B200</bdi> at the moment. A submission waits until one is connected.", "B200 (no machine at the moment)", ">H100</option>")
	lacks(t, "the form for another GPU type", w.get(alice, "/b/sort/H100"), "No machine serves")
}

// An onlooker is nobody, where no provider is set up.
type onlooker struct{ Identity }

func (onlooker) Viewer(*http.Request) backend.Viewer { return backend.Viewer{} }
func (onlooker) Providers() []string                 { return nil }

func TestLogInWithoutAProvider(t *testing.T) {
	w := newRig(t)
	a := httptest.NewRecorder()
	New(Options{Backend: w.backend, Identity: onlooker{}}).ServeHTTP(a, httptest.NewRequest(http.MethodGet, "/login", nil))
	has(t, "the page to log in", a.Body.String(), "a CLI id does not log a browser in", "Ask an organizer for a log-in link", "<code>kbserve user login ID</code>")
}

// The page of a submission says that it waits for the organizers' check, and why that
// rejected it.
func TestPageOfACheckedSubmission(t *testing.T) {
	w := newRig(t)
	w.login(alice, "alice")
	w.save(board("sort", "H100"))
	id := w.accept(store.Submission{Board: "sort", GPU: "H100", Mode: schema.ModeTest, UserID: alice, Check: true})
	has(t, "while it waits", w.get(alice, submissionPath(id)), "It waits for the organizers' check. Nothing of it has run yet.", ">waiting</span>", "Cancel")
	if err := w.store.Decide(t.Context(), id, false, "<b>no sockets"); err != nil {
		t.Fatal(err)
	}
	has(t, "when it is rejected", w.get(alice, submissionPath(id)), "Rejected by the organizers: <b>no sockets.", ">rejected</span>")
}

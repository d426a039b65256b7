package web

import (
	"errors"
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
)

// has fails for each text that a page lacks.
func has(t *testing.T, what, page string, texts ...string) {
	t.Helper()
	page = html.UnescapeString(page)
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%s lacks %q", what, text)
		}
	}
}

// lacks fails for each text that a page has.
func lacks(t *testing.T, what, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("%s has %q", what, text)
		}
	}
}

func TestStart(t *testing.T) {
	w := newWorld(t)
	page := w.get("", "/")
	has(t, "the start page", page, "matmul", "sort-v2", "ends in 9 days", "Nobody yet", "2 running, 10 waiting", "Grace Hopper")
	lacks(t, "the start page for everybody", page, "secret-lab")
	has(t, "the start page of somebody with an invite", w.get(alice, "/"), "secret-lab", "with an invite")
	order := []string{">sort-v2<", ">matmul<", ">conv2d<"}
	if !slices.IsSortedFunc(order, func(a, b string) int { return strings.Index(page, a) - strings.Index(page, b) }) {
		t.Error("boards are not in the order of their deadlines, those that are open first")
	}
	if b200, h100, mi300 := strings.Index(page, "/b/matmul/B200"), strings.Index(page, "/b/matmul/H100"), strings.Index(page, "/b/matmul/MI300"); b200 > h100 || h100 > mi300 {
		t.Errorf("GPU types stand at %d, %d, %d", b200, h100, mi300)
	}
}

func TestBoard(t *testing.T) {
	w := newWorld(t)
	page := w.get(alice, "/b/matmul/H100")
	has(t, "the board", page, ">=1<", "11.102", "11.069–11.135", "+5.102", "tiled.py", `class="tag">you<`, "14 users", "As a table", "Your submissions", "broken.py",
		"60 ranked submissions an hour", "share a rank", "popcorn-cli submit --leaderboard matmul --gpu H100", "/submission/matmul/H100/leaderboard", `enctype="multipart/form-data"`,
		"<h3>Shapes</h3>", "<code>A</code>", "<table>")
	if n := strings.Count(page, "<svg class=\"chart history\""); n != 1 {
		t.Errorf("the board has %d charts of its history, want 1", n)
	}
	lacks(t, "the board for nobody", w.get("", "/b/matmul/H100"), "Your submissions", "multipart/form-data", "broken.py")
	has(t, "a board that nobody ranks on", w.get("", "/b/matmul/MI300"), "The first place is free", "Nothing runs on", "No vendor serves this queue yet.")
	has(t, "a board that is busy", w.get("", "/b/matmul/B200"), "2 running, 10 waiting; a new one begins in about 13 minutes.")
	has(t, "the board without a GPU type", w.get("", "/b/matmul"), "Ranking <span class=\"quiet\">on <bdi>B200")
	has(t, "a board that has ended", w.get("", "/b/conv2d"), "ended 3 days")
	for _, path := range []string{"/b/nothing", "/b/matmul/T4", "/b/secret-lab", "/b/secret-lab/B200", "/b/matmul/H100?page=2", "/templates/matmul/9", "/templates/secret-lab/0"} {
		if a := w.do(bob, "GET", path, nil, nil); a.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: %d, want 404", path, a.StatusCode)
		}
	}
	template := w.do("", "GET", "/templates/matmul/1", nil, nil)
	if template.body != "// begin here\n" || template.Header.Get("Content-Disposition") != `attachment; filename="submission.cu"` {
		t.Errorf("the template is %q, %v", template.body, template.Header)
	}
}

func TestSubmission(t *testing.T) {
	w := newWorld(t)
	own := w.get(alice, submissionPath(w.right))
	has(t, "one's own submission", own, "Ranks on", "11.102", "custom_kernel", "95 % interval 11.069–11.135", "580.95.05", "1755 to 1965 MHz", "up to 641 W", "the judge alone",
		"full by namespaces", "pmpp_v2", "benchmark.1", "60 samples", "/log?run=", "Run again", "Delete it")
	if n := strings.Count(own, `<svg class="chart strip"`); n != 6 {
		t.Errorf("the submission has %d charts of samples, want 6", n)
	}
	lacks(t, "one's own submission", own, "canary-host", "Mark as hacked")
	has(t, "a wrong submission", w.get(alice, submissionPath(w.wrong)), "Does not rank", "submission.py, line 6", "got 0.25, want 0.5", "debug: canary-printed", "slowed down in 3 of 40", "Compare your answer")
	waiting := w.get(alice, submissionPath(w.waiting))
	has(t, "a submission that waits", waiting, "10 runs for B200 go before it", "in about 13 minutes", `<noscript><meta http-equiv="refresh" content="5">`, "data-events=\"/events/submission/", "/cancel")
	has(t, "a submission that runs", w.get(bob, submissionPath(w.running)), "It runs on B200")
	lacks(t, "a submission that is done", own, "http-equiv", "data-events", "/cancel")

	foreign := w.get(alice, submissionPath(w.others))
	has(t, "somebody else's submission", foreign, "Ranks on", "11.103", "Users who are logged in see it once the board has ended")
	lacks(t, "somebody else's submission", foreign, "canary_code_of_bob", "Run again", "benchmark.1", "/log")
	has(t, "an admin's view of it", w.get(boss, submissionPath(w.others)), "canary_code_of_bob", "Mark as hacked", "Verify")
	has(t, "the log", w.get(alice, submissionPath(w.right)+"/log"), "+++ Evaluating matmul")
	if a := w.do(alice, "GET", "/code/"+fmt.Sprint(w.right), nil, nil); !strings.Contains(a.body, "custom_kernel") || a.Header.Get("Content-Disposition") != `attachment; filename="tiled.py"` {
		t.Errorf("the code is %q, %v", a.body, a.Header)
	}
	profile := submissionPath(w.profiled) + "/profile"
	has(t, "the board of it", w.get(alice, "/b/sort-v2"), "rests on at least 20 calls. No 95 % interval is wider than 7.5 % of its mean. No cache holds")
	has(t, "a profiled submission", w.get(alice, submissionPath(w.profiled)), "proved to work on this GPU on 2026-05-04", "rests on at least 20 calls", "Files of profile.0", "Files of profile.1", profile+"?run=")
	if a := w.do(alice, "GET", profile+"?name=profile.1", nil, nil); a.body != "zip 1" || a.Header.Get("Content-Type") != "application/zip" ||
		a.Header.Get("Content-Disposition") != fmt.Sprintf(`attachment; filename="submission-%d-profile.1.zip"`, w.profiled) {
		t.Errorf("the profile is %q, %v", a.body, a.Header)
	}
	for _, c := range []struct {
		as, path string
		want     int
	}{
		{boss, profile, 200}, {bob, profile, 404}, {"", profile, 404}, {alice, profile + "?name=profile.2", 404}, {alice, profile + "?run=x", 404}, {bob, submissionPath(w.right) + "/profile", 403},
		{"", submissionPath(w.wrong), 404}, {bob, submissionPath(w.wrong), 404}, {"", submissionPath(w.waiting), 404}, {bob, "/code/" + fmt.Sprint(w.wrong), 404},
		{bob, "/code/" + fmt.Sprint(w.right), 403}, {bob, submissionPath(w.right) + "/log", 403}, {bob, submissionPath(w.wrong) + "/log", 404}, {"", "/s/0", 404}, {"", "/s/x", 404}, {"", "/s/99999999999999999999", 404},
		{bob, "/events/submission/" + fmt.Sprint(w.wrong), 404}, {"", "/events/board/secret-lab", 404},
	} {
		if a := w.do(c.as, "GET", c.path, nil, nil); a.StatusCode != c.want {
			t.Errorf("GET %s as %q: %d, want %d", c.path, c.as, a.StatusCode, c.want)
		}
	}
}

// Rows that Kernelbot wrote have no report.
func TestSubmissionWithoutReport(t *testing.T) {
	w := newRig(t)
	w.login(alice, "alice")
	w.save(board("sort", "H100"))
	id := w.accept(store.Submission{Board: "sort", GPU: "H100", UserID: alice})
	claimed, err := w.store.Claim(t.Context(), "test", 10, nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range claimed {
		w.begin(p)
		if err := w.store.Record(t.Context(), p, result("H100", 5000), nil); err != nil {
			t.Fatal(err)
		}
	}
	has(t, "a submission without a report", w.get(alice, submissionPath(id)), "5.000", "NVIDIA H100, torch 2.9.1")
}

func TestQueue(t *testing.T) {
	w := newWorld(t)
	page := w.get(alice, "/queue")
	has(t, "the queue", page, "about 1 minute", "not known", "No vendor serves this queue yet.", `class="tag">you<`, submissionPath(w.waiting), "1 m 13 s")
	lacks(t, "the queue", page, fmt.Sprintf(`href="%s"`, submissionPath(w.running)))
	w.queue.fail = http.ErrServerClosed
	a := w.do("", "GET", "/queue", nil, nil)
	id := a.Header.Get("X-Request-Id")
	if a.StatusCode != 500 || id == "" || !strings.Contains(a.body, id) || !strings.Contains(w.log.String(), id) || strings.Contains(a.body, "closed") {
		t.Errorf("a queue that fails: %d, request %q\n%s\n%s", a.StatusCode, id, a.body, w.log.String())
	}
}

func TestUser(t *testing.T) {
	w := newWorld(t)
	has(t, "somebody's page", w.get("", "/u/"+bob), "bob", "of 14", "11.103")
	lacks(t, "somebody's page", w.get(alice, "/u/"+bob), "Submissions", "Make a CLI id", "Log out")
	has(t, "one's own page", w.get(alice, "/u/"+alice), "broken.py", "Make a CLI id", "Log out", "/auth/logout")
	list := w.get(alice, "/u/"+alice+"?board=sort-v2")
	has(t, "the list of one board", list, "radix.py", "To all boards")
	lacks(t, "the list of one board", list, "broken.py")
	for _, id := range []string{"4711", "x", boss} {
		if a := w.do(bob, "GET", "/u/"+id, nil, nil); a.StatusCode != 404 {
			t.Errorf("the page of user %s, who ranks nowhere: %d, want 404", id, a.StatusCode)
		}
	}

	made := w.post(alice, "/u/"+alice, "/u/"+alice, url.Values{"do": {"cli"}})
	_, rest, _ := strings.Cut(made.body, `<pre class="command" tabindex="0">`)
	cliID, _, _ := strings.Cut(rest, "<")
	if u, err := w.store.UserByCLIID(t.Context(), cliID); err != nil || u.ID != alice || made.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the CLI id that was made is of %q, %v; %s", u.ID, err, made.Header)
	}
	lacks(t, "the page after it", w.get(alice, "/u/"+alice), cliID)
	if a := w.post(bob, "/u/"+bob, "/u/"+alice, url.Values{"do": {"cli"}}); a.StatusCode != 403 {
		t.Errorf("making somebody else's CLI id: %d, want 403", a.StatusCode)
	}
	if a := w.post(bob, "/u/"+bob, "/u/"+bob, url.Values{"do": {"join"}, "code": {" " + w.code + " "}}); a.StatusCode != 303 || a.Header.Get("Location") != "/b/secret-lab" {
		t.Errorf("joining: %d to %s", a.StatusCode, a.Header.Get("Location"))
	}
	has(t, "the board that somebody joined", w.get(bob, "/b/secret-lab"), "With an invite.")
	if a := w.post(alice, "/u/"+alice, "/u/"+alice, url.Values{"do": {"join"}, "code": {w.code}}); a.StatusCode != 400 {
		t.Errorf("joining with an invite that is taken: %d, want 400", a.StatusCode)
	}
	if a := w.post(alice, "/u/"+alice, "/auth/logout", nil); a.StatusCode >= 400 {
		t.Errorf("logging out: %d\n%s", a.StatusCode, a.body)
	}
	has(t, "the start page after logging out", w.get(alice, "/"), "Log in")
}

func TestAdmin(t *testing.T) {
	w := newWorld(t)
	for _, as := range []string{"", alice} {
		if a := w.do(as, "GET", "/admin", nil, nil); a.StatusCode != 403 {
			t.Errorf("the page for admins as %q: %d, want 403", as, a.StatusCode)
		}
	}
	if a := w.post(alice, "/u/"+alice, "/admin", url.Values{"do": {"stop"}}); a.StatusCode != 403 {
		t.Errorf("stopping as a user: %d, want 403", a.StatusCode)
	}
	act := func(want string, form url.Values) {
		t.Helper()
		if a := w.post(boss, "/admin", "/admin", form); a.StatusCode != 200 || !strings.Contains(a.body, want) {
			t.Errorf("%v: %d, want %q\n%.500s", form, a.StatusCode, want, a.body)
		}
	}
	act("no submissions are taken", url.Values{"do": {"stop"}})
	if a := w.upload(alice, "matmul", "a.py", "x = 1\n", map[string]string{"gpu": "H100", "mode": "test"}); a.StatusCode != 400 || !strings.Contains(a.body, "No submissions are taken at the moment.") {
		t.Errorf("submitting while it is stopped: %d", a.StatusCode)
	}
	act("submissions are taken", url.Values{"do": {"accept"}})
	act("may not submit any more", url.Values{"do": {"ban"}, "user": {bob}})
	has(t, "the list of users", w.get(boss, "/admin?q=bob"), "banned", "Unban")
	lacks(t, "the search for bob", w.get(boss, "/admin?q=bob"), "warp_divergence</bdi></a></th>")
	act("may submit again", url.Values{"do": {"unban"}, "user": {bob}})
	act("2 invites to secret-lab", url.Values{"do": {"invite"}, "board": {"secret-lab"}, "n": {"2"}})
	has(t, "the list of invites", w.get(boss, "/admin?invites=secret-lab"), w.code, "Revoke")
	act("The invite is gone", url.Values{"do": {"revoke"}, "code": {w.code}})
	act("sort-v2 has ended", url.Values{"do": {"end"}, "board": {"sort-v2"}})
	for _, form := range []url.Values{{"do": {"nonsense"}}, {"do": {"invite"}, "board": {"secret-lab"}, "n": {"many"}}, {"do": {"ban"}, "user": {"4711"}}} {
		if a := w.post(boss, "/admin", "/admin", form); a.StatusCode < 400 || a.StatusCode >= 500 {
			t.Errorf("%v: %d, want a refusal", form, a.StatusCode)
		}
	}
	path := submissionPath(w.right)
	if a := w.post(boss, path, path+"/hacked", url.Values{"why": {"reads the clock"}}); a.StatusCode != 303 {
		t.Errorf("marking as hacked: %d", a.StatusCode)
	}
	has(t, "a submission that does not count", w.get(alice, path), "does not count")
	if a := w.post(alice, path, path+"/delete", nil); a.StatusCode != 403 {
		t.Errorf("deleting one's own submission that is marked as hacked: %d, want 403", a.StatusCode)
	}
	has(t, "an admin's view of it", w.get(boss, path), "/unhack")
	if a := w.post(boss, path, path+"/unhack", nil); a.StatusCode != 303 {
		t.Errorf("taking the mark away: %d", a.StatusCode)
	}
	lacks(t, "a submission without the mark", w.get(alice, path), "does not count")
	if a := w.post(boss, submissionPath(w.others), submissionPath(w.others)+"/verify", url.Values{"gpu": {""}}); a.StatusCode != 303 {
		t.Errorf("verifying: %d\n%s", a.StatusCode, a.body)
	}
}

// The queue says how the last day was.
func TestQueueOfTheLastDay(t *testing.T) {
	w := newWorld(t)
	has(t, "the queue", w.get("", "/queue"), "Began in the last day", "Median wait", "95 % waited at most", "1 machine")
}

// Two submissions are compared by their cases and their code, as far as the viewer sees
// both.
func TestCompare(t *testing.T) {
	w := newWorld(t)
	path := comparePath(w.right, w.wrong)
	own := w.get(alice, path)
	has(t, "one's own two", own, "Two submissions", fmt.Sprint(w.right), fmt.Sprint(w.wrong))
	has(t, "a submission's page", w.get(alice, submissionPath(w.right)), `action="/compare"`, fmt.Sprintf(`value="%d"`, w.wrong))
	has(t, "one with itself", w.get(alice, comparePath(w.right, w.right)), "no change shown", "The two have the same code.")
	has(t, "another user's", w.get(alice, comparePath(w.right, w.others)), "Times are compared only if you may see both results", "You may not see the code of both submissions")
	lacks(t, "another user's", w.get(alice, comparePath(w.right, w.others)), "canary_code_of_bob")
	for path, want := range map[string]int{comparePath(w.right, 99999): 404, "/compare": 200, "/compare?a=1&b=x": 400, comparePath(w.wrong, w.waiting): 404} {
		if a := w.do("", "GET", path, nil, nil); a.StatusCode != want {
			t.Errorf("%s by nobody: %d, want %d", path, a.StatusCode, want)
		}
	}
}

// The organizer's text is shown to everybody, without what could harm them.
func TestAbout(t *testing.T) {
	w := newWorld(t)
	if a := w.do("", "GET", "/about", nil, nil); a.StatusCode != 404 {
		t.Errorf("a page without text: %d, want 404", a.StatusCode)
	}
	lacks(t, "the start page", w.get("", "/"), "/about")
	if a := w.post(alice, "/u/"+alice, "/about", url.Values{"text": {"mine"}}); a.StatusCode != 403 {
		t.Errorf("a text by a user: %d, want 403", a.StatusCode)
	}
	text := "The **spring** games.\r\n\r\n- end in May\r\n<script>alert(1)</script>\r\n"
	if a := w.post(boss, "/about", "/about", url.Values{"text": {text}}); a.StatusCode != 303 {
		t.Errorf("a text by an admin: %d\n%s", a.StatusCode, a.body)
	}
	has(t, "the text", w.get("", "/about"), "<strong>spring</strong>", "<li>end in May")
	lacks(t, "the text", w.get("", "/about"), "<script>alert")
	has(t, "the start page", w.get("", "/"), "The spring games.", "/about")
	has(t, "the admin's form", w.get(boss, "/about"), "The **spring** games.")
	if a := w.post(boss, "/about", "/about", url.Values{"text": {strings.Repeat("x", 51_000)}}); a.StatusCode != 400 {
		t.Errorf("a text that is too long: %d, want 400", a.StatusCode)
	}
}

func TestSettings(t *testing.T) {
	w := newWorld(t)
	path := "/admin/b/conv2d"
	for _, as := range []string{"", alice} {
		if a := w.do(as, "GET", path, nil, nil); a.StatusCode != 403 {
			t.Errorf("the settings as %q: %d, want 403", as, a.StatusCode)
		}
	}
	if a := w.post(alice, "/u/"+alice, path, url.Values{"do": {"set"}}); a.StatusCode != 403 {
		t.Errorf("changing the settings as a user: %d, want 403", a.StatusCode)
	}
	has(t, "the settings", w.get(boss, path), "Deadline, UTC", "Evaluate again")
	form := url.Values{"do": {"set"}, "deadline": {"2100-01-01T18:00"}, "gpus": {"H100"}, "limits": {"test=6"}, "visibility": {"closed"}, "show_code": {"never"}, "reuse": {"yes"},
		"harness": {""}, "sandbox": {""}, "clear_timing": {"no"}, "ties": {"yes"}, "reason": {"the finals begin"}}
	act := func(want string, form url.Values) {
		t.Helper()
		if a := w.post(boss, path, path, form); a.StatusCode != 200 || !strings.Contains(a.body, want) {
			t.Errorf("%v: %d, want %q\n%.2000s", form, a.StatusCode, want, a.body)
		}
	}
	act("visibility: public → closed", form)
	act("Nothing was changed.", form)
	has(t, "the board, which an admin sees", w.get(boss, "/b/conv2d"), "Changes of the settings", "the finals begin")
	if a := w.do(alice, "GET", "/b/conv2d", nil, nil); a.StatusCode != 404 {
		t.Errorf("the closed board for a user without an invite: %d, want 404", a.StatusCode)
	}
	act("That would be", url.Values{"do": {"preview"}, "which": {"all"}})
	act("Will be evaluated again", url.Values{"do": {"rejudge"}, "which": {"ranked"}, "reason": {"the reference was wrong"}})
	has(t, "the settings after it", w.get(boss, path), "The last time", "the reference was wrong")
	for name, change := range map[string][2]string{"deadline": {"deadline", "soon"}, "limit": {"limits", "many"}, "GPU types": {"gpus", ""}, "visibility": {"visibility", "secret"}, "do": {"do", "nonsense"}} {
		wrong := maps.Clone(form)
		wrong.Set(change[0], change[1])
		if a := w.post(boss, path, path, wrong); a.StatusCode < 400 || a.StatusCode >= 500 {
			t.Errorf("a wrong %s: %d, want a refusal", name, a.StatusCode)
		}
	}
}

func TestSubmit(t *testing.T) {
	w := newWorld(t)
	fields := func() map[string]string { return map[string]string{"gpu": "B200", "mode": "test"} }
	a := w.upload(alice, "matmul", "mine.py", "def custom_kernel(data):\n    return data\n", fields())
	if a.StatusCode != 303 {
		t.Fatalf("submitting: %d\n%.2000s", a.StatusCode, a.body)
	}
	has(t, "what was submitted", w.get(alice, a.Header.Get("Location")), "mine.py", "B200", "return</span> data")
	for _, c := range []struct {
		what, board, file, code string
		fields                  map[string]string
		want                    int
		text                    string
	}{
		{"no code", "matmul", "a.py", "", fields(), 400, "No file was chosen."},
		{"an unknown GPU type", "matmul", "a.py", "x=1\n", map[string]string{"gpu": "T4", "mode": "test"}, 404, "T4"},
		{"an unknown mode", "matmul", "a.py", "x=1\n", map[string]string{"gpu": "B200", "mode": "private"}, 400, "private"},
		{"another board in the file", "matmul", "a.py", "#!POPCORN leaderboard other\n", fields(), 400, "the file says"},
		{"bytes that are no text", "matmul", "a.py", "\xff\xfe", fields(), 400, "UTF-8"},
		{"a closed board", "conv2d", "a.py", "x=1\n", map[string]string{"gpu": "H100", "mode": "test"}, 400, "deadline"},
		{"a board that one may not see", "secret-lab", "a.py", "x=1\n", fields(), 404, ""},
		{"too much", "matmul", "a.py", strings.Repeat("x", store.MaxCode+1), fields(), 400, ""},
		{"far too much", "matmul", "a.py", strings.Repeat("x", 2*store.MaxCode), fields(), 413, "1,000,000"},
	} {
		as := alice
		if c.board == "secret-lab" {
			as = bob
		}
		a := w.upload(as, c.board, c.file, c.code, c.fields)
		if a.StatusCode != c.want || !strings.Contains(a.body, c.text) {
			t.Errorf("%s: %d, want %d and %q\n%.400s", c.what, a.StatusCode, c.want, c.text, a.body)
		}
	}
	limited := board("limited", "H100")
	limited.Limits = []store.Limit{{Category: schema.ModeTest, PerHour: 1}}
	w.save(limited)
	for _, want := range []int{303, 429} {
		a = w.upload(alice, "limited", "a.py", "x=1\n", map[string]string{"gpu": "H100", "mode": "test"})
		if a.StatusCode != want {
			t.Errorf("with a limit of one: %d, want %d", a.StatusCode, want)
		}
	}
	if a.Header.Get("Retry-After") == "" || !strings.Contains(a.body, `role="alert"`) {
		t.Errorf("over the limit: %v", a.Header)
	}
}

func TestButtons(t *testing.T) {
	w := newWorld(t)
	path := submissionPath(w.waiting)
	if a := w.post(alice, path, path+"/cancel", nil); a.StatusCode != 303 || a.Header.Get("Location") != path {
		t.Errorf("cancelling: %d", a.StatusCode)
	}
	has(t, "what was cancelled", w.get(alice, path), "Cancelled by its submitter", "Run again")
	a := w.post(alice, path, path+"/rerun", nil)
	again := a.Header.Get("Location")
	if a.StatusCode != 303 || again == path {
		t.Fatalf("running again: %d to %s\n%s", a.StatusCode, again, a.body)
	}
	has(t, "what runs again", w.get(alice, again), "persistent_tma")
	if a := w.post(bob, "/b/matmul", path+"/cancel", nil); a.StatusCode != 404 {
		t.Errorf("cancelling somebody else's: %d, want 404", a.StatusCode)
	}
	if a := w.post(bob, "/b/matmul", submissionPath(w.right)+"/delete", nil); a.StatusCode != 403 {
		t.Errorf("deleting somebody else's: %d, want 403", a.StatusCode)
	}
	old := submissionPath(w.right)
	if a := w.post(alice, old, old+"/delete", nil); a.StatusCode != 303 || a.Header.Get("Location") != "/u/"+alice {
		t.Errorf("deleting: %d to %s\n%s", a.StatusCode, a.Header.Get("Location"), a.body)
	}
	if a := w.do(alice, "GET", old, nil, nil); a.StatusCode != 404 {
		t.Errorf("what was deleted: %d, want 404", a.StatusCode)
	}
	if a := w.post(alice, "/b/matmul", path+"/nonsense", nil); a.StatusCode != 404 {
		t.Errorf("a button that there is not: %d, want 404", a.StatusCode)
	}
}

// A brokenIdentity cannot say who asks.
type brokenIdentity struct{ Identity }

func (brokenIdentity) Viewer(*http.Request) backend.Viewer { panic("canary-panic") }

func TestPanicIsAnErrorPage(t *testing.T) {
	w := newRig(t)
	pages := New(Options{Backend: w.backend, Identity: brokenIdentity{}, Log: slog.New(slog.NewTextHandler(w.log, nil))})
	a := httptest.NewRecorder()
	pages.ServeHTTP(a, httptest.NewRequest(http.MethodGet, "/", nil))
	id := a.Header().Get("X-Request-Id")
	if a.Code != 500 || !strings.Contains(a.Body.String(), id) || strings.Contains(a.Body.String(), "canary-panic") || strings.Contains(w.log.String(), "canary-panic") || !strings.Contains(w.log.String(), "panic") || !strings.Contains(w.log.String(), id) {
		t.Errorf("a panic: %d\n%s\n%s", a.Code, a.Body, w.log)
	}
}

func TestLogIn(t *testing.T) {
	w := newRig(t)
	page := w.get("", "/login?next=/b/sort")
	has(t, "the page to log in", page, "Log in with GitHub", "Log in with Discord", "/auth/login?next=%2Fb%2Fsort&provider=github")
	has(t, "the page to log in", w.get("", "/login?next=//evil.example"), "next=%2F&provider")
	a := w.do("", "GET", "/nothing", nil, nil)
	if a.StatusCode != 404 || !strings.Contains(a.body, "Nothing here") {
		t.Errorf("no page: %d\n%s", a.StatusCode, a.body)
	}
	has(t, "an empty competition", w.get("", "/"), "There is no board yet")
}

// The page of a log-in link, and what it says of a used one, look like the other pages.
func TestPagesOfLinks(t *testing.T) {
	w := newRig(t)
	w.login(alice, "alice")
	token, err := w.store.NewLink(t.Context(), alice, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	html := http.Header{"Accept": {"text/html"}}
	link := w.do("", "GET", "/auth/link?token="+token, nil, html)
	has(t, "the page of a link", link.body, "<title>Log in? · Kernel Games</title>", `<header class="top">`, `href="/assets/style.`, "Log in as alice?", `<button class="primary">Log in</button>`)
	if policy := link.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "style-src 'self';") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy of the page of a link is %q", policy)
	}
	has(t, "the page of a used link", w.do("", "GET", "/auth/link?token=x", nil, html).body, `<header class="top">`, "This link was used, or is older than ten minutes; ask for another.")
}

// "Log out everywhere" ends every session of the user, and nobody else can ask for it.
func TestLogOutEverywhere(t *testing.T) {
	w := newWorld(t)
	other, err := w.store.NewSession(t.Context(), alice, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	path := "/u/" + alice
	has(t, "her page", w.get(alice, path), "Log out everywhere")
	if a := w.post(bob, "/u/"+bob, path, url.Values{"do": {"logout"}}); a.StatusCode != 403 {
		t.Errorf("logging another user out: %d, want 403", a.StatusCode)
	}
	if a := w.post(alice, path, path, url.Values{"do": {"logout"}}); a.StatusCode != 303 {
		t.Errorf("logging out everywhere: %d, want 303", a.StatusCode)
	}
	if _, err := w.store.UserBySession(t.Context(), other); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the session of another browser: %v, want ErrNotFound", err)
	}
	lacks(t, "her page", w.get(alice, path), "Log out everywhere")
}

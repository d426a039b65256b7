// Package selftest sends one submission through a whole installation: by HTTP to the
// server, through Buildkite, and back into the store, on a board of its own.
package selftest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/examples"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// Options say what to send, and where to.
type Options struct {
	Store    *store.Store // of the server
	URL      string       // of the server
	GPU      string
	Mode     string
	Task     string        // name of an example
	Timeout  time.Duration // for the whole evaluation
	Interval time.Duration // between two polls
	Cleanup  bool          // remove what the test made
	Out, Err io.Writer     // progress, and a note on rows that stay
}

// An Error is a test that failed, with the command that helps.
type Error struct {
	Err  error
	Hint string // "kbserve …"
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Run sends an example's right submission through a server and checks everything
// that is stored of it.
//
// Errors: [Error] for faults with a hint.
func Run(ctx context.Context, o Options) error {
	t, file, err := load(o.Task)
	if err != nil {
		return err
	}
	x := &selftest{Options: &o, store: o.Store, file: file}
	return x.run(ctx, t)
}

// load returns a task that comes with the program, and the submission to it that is
// right.
func load(name string) (*task.Task, schema.File, error) {
	example, ok := examples.Find(name)
	if !ok {
		return nil, schema.File{}, fmt.Errorf("there is no example %s", text.Quote(name))
	}
	t, err := task.Load(examples.FS(), example.Dir)
	if err != nil {
		return nil, schema.File{}, err
	}
	for _, submission := range example.Submissions {
		if strings.HasPrefix(submission, "right.") {
			code, err := fs.ReadFile(examples.FS(), path.Join(example.Dir, "submissions", submission))
			return t, schema.File{Name: submission, Text: string(code)}, err
		}
	}
	return nil, schema.File{}, fmt.Errorf("example %s has no submission that is right", name)
}

// A selftest is one passage of a submission through everything.
type selftest struct {
	*Options
	store *store.Store
	file  schema.File

	board, user, cliID string
	id                 int64
}

func (x *selftest) say(format string, args ...any) { fmt.Fprintf(x.Out, format+"\n", args...) }

func (x *selftest) run(ctx context.Context, t *task.Task) (err error) {
	var random [6]byte
	rand.Read(random[:]) // never fails
	x.board = store.TestPrefix + hex.EncodeToString(random[:])
	defer func() {
		if x.user == "" {
			return
		}
		if x.Cleanup {
			err = errors.Join(err, x.remove(context.WithoutCancel(ctx)))
		} else {
			fmt.Fprintf(x.Err, "kbserve: note: its rows stay; kbserve selftest --remove %s takes them away\n", x.board)
		}
	}()
	if err := x.prepare(ctx, t); err != nil {
		return err
	}
	x.say("made     board %s, closed, with one invite", x.board)
	if x.id, err = x.submit(ctx); err != nil {
		return err
	}
	x.say("accepted submission %d by %s", x.id, text.Line(x.URL, 200))
	began := time.Now()
	if err := x.wait(ctx); err != nil {
		return err
	}
	x.say("finished after %v", time.Since(began).Round(time.Second))
	return x.verify(ctx)
}

// prepare makes the board, a user and their invite.
func (x *selftest) prepare(ctx context.Context, t *task.Task) (err error) {
	b := store.Board{Name: x.board, Deadline: time.Now().Add(7 * 24 * time.Hour), Description: t.Description, GPUs: []string{x.GPU}, Visibility: store.Closed, Task: t, Policy: &ranking.Policy{}, ShowCode: store.CodeNever}
	if _, err := x.store.SaveBoards(ctx, []store.Board{b}, store.SaveOptions{New: true}); err != nil {
		return err
	}
	if x.user, x.cliID, err = x.store.NewTestUser(ctx); err != nil {
		return err
	}
	codes, err := x.store.NewInvites(ctx, []string{x.board}, 1)
	if err == nil {
		_, err = x.store.ClaimInvite(ctx, codes[0], x.user)
	}
	return err
}

// verify looks at the rows that must be there.
func (x *selftest) verify(ctx context.Context) error {
	p, err := x.store.Poll(ctx, x.id)
	if err != nil {
		return err
	}
	if p.Job.Status != store.StatusSucceeded || !p.Done {
		return &Error{fmt.Errorf("submission %d ended as %s: %s", x.id, p.Job.Status, text.Line(p.Job.Error, 300)), fmt.Sprintf("kbserve submission show %d", x.id)}
	}
	if p.Code != x.file.Text || p.UserID != x.user || p.Board != x.board {
		return fmt.Errorf("submission %d: its row is not what was sent", x.id)
	}
	want := map[string]int{schema.ModeTest: 1, schema.ModeBenchmark: 2, schema.ModeLeaderboard: 6}[x.Mode]
	if x.Mode == schema.ModeProfile {
		want = len(p.Runs)
	}
	if len(p.Runs) != want || len(p.Runs) == 0 {
		return fmt.Errorf("submission %d: got %d runs, want %d", x.id, len(p.Runs), want)
	}
	for _, r := range p.Runs {
		if !r.Passed || r.Runner != x.GPU || !r.Secret && len(r.System) < len(`{"gpu":""}`) || r.Start.IsZero() || r.End.Before(r.Start) {
			return fmt.Errorf("submission %d: its run %s on %s has not passed, or lacks what was reported", x.id, r.Mode, text.Line(r.Runner, 100))
		}
	}
	reports, err := x.store.Reports(ctx, x.id)
	if err != nil {
		return err
	}
	x.say("stored   runs: %d, reports: %d", len(p.Runs), len(reports))
	if x.Mode != schema.ModeLeaderboard {
		return nil
	}
	return x.verifyRank(ctx)
}

func (x *selftest) verifyRank(ctx context.Context) error {
	page, total, err := x.store.Page(ctx, x.board, x.GPU, 0, 0)
	if err != nil {
		return err
	}
	if total != 1 || page[0].SubmissionID != x.id || page[0].Rank != 1 || !(page[0].Score > 0) {
		return fmt.Errorf("board %s: submission %d does not rank as the first and only one", x.board, x.id)
	}
	x.say("ranked   %s", format.Score(page[0].Score))
	return nil
}

// remove takes away what the test made, and looks that it is gone.
func (x *selftest) remove(ctx context.Context) error {
	if err := x.store.RemoveTest(ctx, x.board, x.user); err != nil {
		return err
	}
	_, boardErr := x.store.Board(ctx, x.board)
	_, userErr := x.store.User(ctx, x.user)
	_, submissionErr := x.store.Poll(ctx, x.id)
	for _, err := range []error{boardErr, userErr, submissionErr} {
		if !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("rows of the test are left: %v", err)
		}
	}
	x.say("removed  everything that the test made")
	return nil
}

// maxAnswer is how much of a server's answer is read, in bytes: a poll has the
// code and reports of a small example.
const maxAnswer = 32 << 20

// submit sends the example as popcorn-cli does, and returns the submission's id.
func (x *selftest) submit(ctx context.Context) (int64, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", x.file.Name)
	if err != nil {
		return 0, err
	}
	if _, err := io.WriteString(part, x.file.Text); err != nil {
		return 0, err
	}
	if err := form.Close(); err != nil {
		return 0, err
	}
	var answer struct {
		Details struct {
			ID int64 `json:"id"`
		} `json:"details"`
	}
	err = x.ask(ctx, "POST", "/submission/"+url.PathEscape(x.board)+"/"+url.PathEscape(x.GPU)+"/"+url.PathEscape(x.Mode), form.FormDataContentType(), &body, &answer)
	if err == nil && answer.Details.ID == 0 {
		err = fmt.Errorf("the server's answer has no submission id")
	}
	return answer.Details.ID, err
}

// wait polls as popcorn-cli does until the submission is over.
func (x *selftest) wait(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, x.Timeout)
	defer stop()
	for {
		var answer struct {
			Done bool `json:"done"`
			Job  struct {
				Status string `json:"status"`
			} `json:"job"`
		}
		err := x.ask(ctx, "GET", fmt.Sprintf("/user/submissions/%d", x.id), "", nil, &answer)
		switch {
		case ctx.Err() != nil:
			return &Error{fmt.Errorf("submission %d is not over after %v", x.id, x.Timeout), "kbserve doctor --age 1m"}
		case err != nil:
			return err
		case answer.Done:
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(x.Interval):
		}
	}
}

// ask makes one request as the test's user.
func (x *selftest) ask(ctx context.Context, method, path, contentType string, body io.Reader, into any) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	what := method + " " + path
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(x.URL, "/")+path, body)
	if err != nil {
		return fmt.Errorf("URL: got %s, want http://HOST:PORT or https://HOST", text.Quote(text.Shorten(x.URL, 200)))
	}
	request.Header.Set("X-Popcorn-Cli-Id", x.cliID)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return &Error{fmt.Errorf("%s: %s", what, text.Line(err.Error(), 300)), "kbserve serve"}
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: %s", what, text.Line(err.Error(), 300))
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s: got status %d: %s", what, response.StatusCode, text.Line(string(data), 300))
	}
	if json.Unmarshal(data, into) != nil {
		return fmt.Errorf("%s: the answer is not what kbserve sends", what)
	}
	return nil
}

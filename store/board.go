package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// Visibilities of a board.
const (
	Public = "public"
	Closed = "closed" // for those with an invite
)

// A Board is one leaderboard. Clients put its name into a path unescaped and in
// lower case.
type Board struct {
	Name        string
	Deadline    time.Time
	Description string
	GPUs        []string // GPU types, sorted when read
	Visibility  string   // "" leaves what is there; Public for a new board

	Task   *task.Task      // nil leaves what is there, of Description too; nil when listed
	Policy *ranking.Policy // nil leaves what is there
	Limits []Limit         // nil leaves what is there; nil when listed

	// ShowCode says when others see code: CodeNever or CodeAfter the deadline; ""
	// leaves what is there, of Reuse too. Reuse says that whoever submits the same
	// text again gets the result that is there.
	ShowCode string
	Reuse    bool

	ID          int64 // these three when read
	Submissions int
	Ranked      int // standings on all GPU types
}

// What [Board].ShowCode may be.
const (
	CodeNever = "never"
	CodeAfter = "after" // the usual
)

// A Limit bounds one user's submissions per hour.
type Limit struct {
	GPU      string `json:"gpu_type"` // "" is all of the board's together
	Category string `json:"category"` // schema.ModeTest, which is every mode but ranked ones, or schema.ModeLeaderboard
	PerHour  int    `json:"per_hour"` // 0 closes the category
}

// A Change is what [Store.SaveBoards] does to one board.
type Change struct {
	Board string
	What  string // created, changed or unchanged
	Parts []Edit // of a board that was changed
}

// An Edit is one setting of a board that was changed. Old and New are "" for what
// is too long to show, as the task's files are.
type Edit struct{ Field, Old, New string }

// String is "deadline: 2026-12-31T00:00:00Z → 2027-01-31T00:00:00Z".
func (e Edit) String() string {
	if e.Old == "" && e.New == "" {
		return e.Field
	}
	return fmt.Sprintf("%s: %s → %s", e.Field, cmp.Or(e.Old, "none"), cmp.Or(e.New, "none"))
}

var boardName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)

func (b *Board) check() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("board %s: "+format, append([]any{text.Quote(b.Name)}, args...)...))
	}
	if !boardName.MatchString(b.Name) {
		fault("name: want at most 100 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit")
	}
	if b.Deadline.Year() < 2000 || b.Deadline.Year() > 9000 {
		fault("deadline: got year %d, want 2000 to 9000", b.Deadline.Year())
	}
	if len(b.GPUs) == 0 {
		fault("GPU types: got none, want at least one")
	}
	for i, gpu := range b.GPUs {
		if gpu == "" || len(gpu) > 100 || gpu != text.Line(gpu, 100) || strings.Contains(gpu, "/") || slices.Contains(b.GPUs[:i], gpu) {
			fault("GPU type %s: want names, each once, without '/'", text.Quote(gpu))
		}
	}
	if b.Visibility != "" && b.Visibility != Public && b.Visibility != Closed {
		fault("visibility: got %s, want %s or %s", text.Quote(b.Visibility), Public, Closed)
	}
	if b.ShowCode != "" && b.ShowCode != CodeNever && b.ShowCode != CodeAfter {
		fault("show code: got %s, want %s or %s", text.Quote(b.ShowCode), CodeNever, CodeAfter)
	}
	if strings.ContainsRune(b.Description, 0) || len(b.Description) > 1<<20 {
		fault("description: want at most 1 MiB without U+0000")
	}
	if p := b.Policy; p != nil {
		if p.Harness != "" && p.Harness != schema.HarnessIsolated && p.Harness != ranking.HarnessProved {
			fault("harness: got %s, want %s, %s or none", text.Quote(p.Harness), schema.HarnessIsolated, ranking.HarnessProved)
		}
		if p.Sandbox != "" && !slices.Contains(schema.SandboxLevels(), p.Sandbox) {
			fault("sandbox: got %s, want one of %s", text.Quote(p.Sandbox), strings.Join(schema.SandboxLevels(), ", "))
		}
	}
	for i, l := range b.Limits {
		if why := l.fault(b.GPUs); why != "" {
			fault("limit %s: %s", l, why)
		}
		if slices.ContainsFunc(b.Limits[:i], func(o Limit) bool { return o.GPU == l.GPU && o.Category == l.Category }) {
			fault("limit %s: it is there twice", l)
		}
	}
	return errors.Join(faults...)
}

// Board reads one board with its task, policy and limits.
//
// Errors: [ErrNotFound]; a task that cannot be read.
func (s *Store) Board(ctx context.Context, name string) (*Board, error) {
	b := &Board{Name: name}
	err := s.snapshot(ctx, "reading board "+text.Quote(text.Shorten(name, 100)), func(t *tx) {
		var column string
		var version int64
		t.get(dest{&b.ID, &b.Deadline, &b.Description, &b.Visibility, &column, &version}, `SELECT l.id, l.deadline, l.description, l.visibility, CAST(l.task AS text), coalesce(b.version, 0)
			FROM lb.leaderboard l LEFT JOIN own.board b ON b.leaderboard_id = l.id WHERE l.name = $1`, name)
		b.GPUs = t.gpus(b.ID)
		t.readTask(b, column)
		b.Limits = t.readLimits(b.ID)
		b.Ranked = t.ranked(b.ID, version)
		b.Submissions = t.submissions()[b.ID]
	})
	return b, err
}

// readTask reads a board's settings and its task, which stands in several tables.
func (t *tx) readTask(b *Board, column string) {
	set := t.settings(b.ID)
	if t.err != nil {
		return
	}
	b.Policy, b.ShowCode, b.Reuse = &set.Policy, set.ShowCode, set.Reuse
	if b.Task, t.err = taskFrom(column, set.extension); t.err != nil {
		return
	}
	b.Task.Description, b.Task.GPUs = b.Description, b.GPUs
	var template task.Template
	t.each(dest{&template.Language, &template.Text}, func() { b.Task.Templates = append(b.Task.Templates, template) }, `SELECT lang, code FROM lb.templates WHERE leaderboard_id = $1 ORDER BY id`, b.ID)
}

// Boards lists all boards by name. How many submissions they have may be as of some
// seconds ago where another instance deleted some.
func (s *Store) Boards(ctx context.Context) (boards []Board, err error) {
	err = s.snapshot(ctx, "listing boards", func(t *tx) {
		var versions []int64
		boards, versions = t.boardRows()
		gpus := map[int64][]string{}
		var id int64
		var gpu string
		t.each(dest{&id, &gpu}, func() { gpus[id] = append(gpus[id], gpu) }, `SELECT leaderboard_id, gpu_type FROM lb.gpu_type`)
		submissions := t.submissions()
		for i := range boards {
			b := &boards[i]
			b.GPUs, b.Submissions, b.Ranked = slices.Sorted(slices.Values(gpus[b.ID])), submissions[b.ID], t.ranked(b.ID, versions[i])
		}
	})
	return boards, err
}

// boardRows reads the rows of all boards, and their versions.
func (t *tx) boardRows() (boards []Board, versions []int64) {
	var b Board
	var policy ranking.Policy
	var version int64
	t.each(dest{&b.ID, &b.Name, &b.Deadline, &b.Description, &b.Visibility, &policy.Harness, &policy.Sandbox, &policy.ClearTiming, &policy.Ties, &b.ShowCode, &b.Reuse, &version}, func() {
		own := policy
		b.Policy = &own
		boards, versions = append(boards, b), append(versions, version)
	}, `SELECT l.id, l.name, l.deadline, l.description, l.visibility, coalesce(b.harness, ''), coalesce(b.sandbox, ''), coalesce(b.clear_timing, false), coalesce(b.ties, false), coalesce(b.show_code, 'after'), coalesce(b.reuse, false), coalesce(b.version, 0)
		FROM lb.leaderboard l LEFT JOIN own.board b ON b.leaderboard_id = l.id ORDER BY l.name`)
	return boards, versions
}

func (t *tx) gpus(board int64) []string {
	gpus := values[string](t, `SELECT gpu_type FROM lb.gpu_type WHERE leaderboard_id = $1`, board)
	slices.Sort(gpus)
	return gpus
}

// A SetOptions says how [Store.SetBoard] changes a board.
type SetOptions struct {
	By Author

	// JudgeLate makes submissions late or not by the board's new deadline. Without it,
	// they stay what they were when they came.
	JudgeLate bool
}

// SetBoard changes a board's settings. It calls edit, possibly more than once, with
// the current settings (Task is nil), and saves the edited settings. The
// ranking follows in the same transaction.
//
// Errors: [ErrNotFound]; [*Refusal] with Invalid; edit's.
func (s *Store) SetBoard(ctx context.Context, name string, edit func(*Board) error, opts SetOptions) (c Change, err error) {
	err = s.change(ctx, "changing board "+text.Quote(text.Shorten(name, 100)), func(t *tx) {
		b := Board{Name: name, ID: t.named(name)}
		t.get(dest{&b.Deadline, &b.Description, &b.Visibility}, `SELECT deadline, description, visibility FROM lb.leaderboard WHERE id = $1 {lock but for references}`, b.ID)
		if opts.JudgeLate {
			t.lockOwners(b.ID) // before the board's own row, as all who judge do
		}
		b.GPUs, b.Limits = t.gpus(b.ID), t.readLimits(b.ID)
		set := t.settings(b.ID)
		b.Policy, b.ShowCode, b.Reuse = &set.Policy, set.ShowCode, set.Reuse
		if t.err != nil {
			return
		}
		if t.err = edit(&b); t.err != nil {
			return
		}
		if b.Visibility == "" || b.ShowCode == "" {
			t.refuse(Invalid, "board %s: visibility or show code: got none, want a value", text.Quote(name))
		}
		if err := b.check(); err != nil {
			t.refuse(Invalid, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		c = t.saveBoard(&b, SaveOptions{By: opts.By})
		if opts.JudgeLate {
			c.Parts = append(c.Parts, t.judgeLate(b.ID, opts.By)...)
		}
	})
	return c, err
}

// judgeLate applies a board's deadline to its existing submissions.
func (t *tx) judgeLate(board int64, by Author) (parts []Edit) {
	ids := values[int64](t, `SELECT s.id FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id JOIN own.accepted a ON a.submission_id = s.id
		WHERE l.id = $1 AND a.late <> (s.submission_time > l.deadline) ORDER BY s.id`, board)
	if len(ids) == 0 {
		return nil
	}
	for _, id := range ids {
		t.exec(`UPDATE own.accepted SET late = NOT late WHERE submission_id = $1`, id)
		t.judge(id)
	}
	parts = []Edit{{"late", "by the deadline when they came", fmt.Sprintf("by the new deadline, submissions: %d", len(ids))}}
	t.record(board, parts, by)
	return parts
}

// A BoardChange is one line of a board's history.
type BoardChange struct {
	Time time.Time
	Author
	Edit
}

// record adds lines to a board's history.
func (t *tx) record(board int64, edits []Edit, by Author) {
	now := t.now()
	for _, e := range edits {
		t.exec(`INSERT INTO own.board_change (leaderboard_id, changed_at, author, reason, field, old, new) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			board, now, text.Line(by.Name, 100), text.Line(by.Reason, maxError), e.Field, text.Line(e.Old, 2000), text.Line(e.New, 2000))
	}
}

// BoardChanges lists how a board's settings changed, the latest first, at most 200.
//
// Errors: [ErrNotFound].
func (s *Store) BoardChanges(ctx context.Context, board string) (all []BoardChange, err error) {
	err = s.snapshot(ctx, "reading the changes of board "+text.Quote(text.Shorten(board, 100)), func(t *tx) {
		var c BoardChange
		t.each(dest{&c.Time, &c.Author.Name, &c.Reason, &c.Field, &c.Old, &c.New}, func() { all = append(all, c) },
			`SELECT changed_at, author, reason, field, old, new FROM own.board_change WHERE leaderboard_id = $1 ORDER BY id DESC LIMIT 200`, t.named(board))
	})
	return all, err
}

// DeleteBoard removes a board, with force also one that has submissions, and them
// with it. It returns how many those are.
//
// Errors: [ErrNotFound].
func (s *Store) DeleteBoard(ctx context.Context, name string, force bool) (submissions int, err error) {
	err = s.change(ctx, "deleting board "+text.Quote(name), func(t *tx) {
		id := t.named(name)
		t.lockWhole(id)
		t.get(dest{&submissions}, `SELECT count(*) FROM lb.submission WHERE leaderboard_id = $1`, id)
		if submissions > 0 && !force {
			t.refuse(Invalid, "deleting board %s: it has submissions: %d", text.Quote(name), submissions)
		}
		t.deleteBoard(id)
		t.tell(Signal{Kind: SignalBoard, ID: name})
	})
	s.counts.forget()
	return submissions, err
}

func (t *tx) deleteBoard(id int64) {
	for _, statement := range []string{
		`DELETE FROM lb.runs WHERE submission_id IN (SELECT id FROM lb.submission WHERE leaderboard_id = $1)`,
		`DELETE FROM lb.submission WHERE leaderboard_id = $1`,
		`DELETE FROM lb.templates WHERE leaderboard_id = $1`,
		`DELETE FROM lb.leaderboard WHERE id = $1`,
	} {
		t.exec(statement, id)
	}
}

// ParseLimit reads category=N or category@GPU=N, as test=6 or test@H100=6.
func ParseLimit(s string) (Limit, error) {
	what, number, _ := strings.Cut(s, "=")
	category, gpu, _ := strings.Cut(what, "@")
	n, err := strconv.Atoi(number)
	if err != nil || category != schema.ModeTest && category != schema.ModeLeaderboard {
		return Limit{}, fmt.Errorf("got %s, want test=N, leaderboard=N, test@GPU=N or leaderboard@GPU=N", text.Quote(text.Shorten(s, 100)))
	}
	return Limit{GPU: gpu, Category: category, PerHour: n}, nil
}

// String is the limit as `kbserve limits` takes it: test=6, or test@H100=6.
func (l Limit) String() string {
	if l.GPU != "" {
		return fmt.Sprintf("%s@%s=%d", text.Line(l.Category, 40), text.Line(l.GPU, 100), l.PerHour)
	}
	return fmt.Sprintf("%s=%d", text.Line(l.Category, 40), l.PerHour)
}

// fault says what is wrong with a limit of a board that has these GPU types, ""
// for nothing.
func (l Limit) fault(gpus []string) string {
	switch {
	case l.Category != schema.ModeTest && l.Category != schema.ModeLeaderboard:
		return fmt.Sprintf("want %s or %s", schema.ModeTest, schema.ModeLeaderboard)
	case l.PerHour < 0 || l.PerHour > 1e6:
		return "want 0 to 1000000 an hour"
	case l.GPU != "" && !slices.Contains(gpus, l.GPU):
		return "want a GPU type of the board"
	}
	return ""
}

func (t *tx) saveLimits(board int64, limits []Limit) {
	t.exec(`DELETE FROM lb.rate_limit WHERE leaderboard_id = $1`, board)
	t.exec(`DELETE FROM own.gpu_limit WHERE leaderboard_id = $1`, board)
	for _, l := range limits {
		if l.GPU == "" {
			t.exec(`INSERT INTO lb.rate_limit (leaderboard_id, mode_category, max_submissions_per_hour) VALUES ($1, $2, $3)`, board, l.Category, l.PerHour)
		} else {
			t.exec(`INSERT INTO own.gpu_limit (leaderboard_id, gpu, mode_category, per_hour) VALUES ($1, $2, $3, $4)`, board, l.GPU, l.Category, l.PerHour)
		}
	}
}

// Limits returns the limits of a board: those of all GPU types together first.
//
// Errors: [ErrNotFound].
func (s *Store) Limits(ctx context.Context, board string) (limits []Limit, err error) {
	err = s.snapshot(ctx, "reading the limits of board "+text.Quote(board), func(t *tx) {
		limits = t.readLimits(t.named(board))
	})
	return limits, err
}

func (t *tx) readLimits(board int64) (limits []Limit) {
	var l Limit
	t.each(dest{&l.GPU, &l.Category, &l.PerHour}, func() { limits = append(limits, l) }, `SELECT '' AS gpu, mode_category, max_submissions_per_hour FROM lb.rate_limit WHERE leaderboard_id = $1
		UNION ALL SELECT gpu, mode_category, per_hour FROM own.gpu_limit WHERE leaderboard_id = $1 ORDER BY 1, 2`, board)
	return limits
}

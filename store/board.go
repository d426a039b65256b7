package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
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
	Visibility  string   // "" is Public

	Task   *task.Task      // nil when listed
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
	GPU      string // "" is all of the board's together
	Category string // schema.ModeTest, which is every mode but ranked ones, or schema.ModeLeaderboard
	PerHour  int    // 0 closes the category
}

// A Change is what [Store.SaveBoards] does to one board.
type Change struct {
	Board string
	What  string   // created, changed or unchanged
	Parts []string // what differs
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
	if b.Task == nil {
		fault("task: want one")
	}
	if p := b.Policy; p != nil {
		if p.Harness != "" && p.Harness != schema.HarnessIsolated {
			fault("harness: got %s, want %s or none", text.Quote(p.Harness), schema.HarnessIsolated)
		}
		if p.Sandbox != "" && !slices.Contains(schema.SandboxLevels(), p.Sandbox) {
			fault("sandbox: got %s, want one of %s", text.Quote(p.Sandbox), strings.Join(schema.SandboxLevels(), ", "))
		}
	}
	for _, l := range b.Limits {
		if why := l.fault(b.GPUs); why != "" {
			fault("limit %s: %s", l, why)
		}
	}
	return errors.Join(faults...)
}

// Board reads one board with its task, policy and limits.
//
// Errors: [ErrNotFound]; a task that cannot be read.
func (s *Store) Board(ctx context.Context, name string) (*Board, error) {
	b := &Board{Name: name}
	err := s.snapshot(ctx, "reading board "+text.Quote(text.Shorten(name, 100)), func(tx *sql.Tx) error {
		var deadline database.Stamp
		var column string
		var version int64
		err := s.db.Row(ctx, tx, `SELECT l.id, l.deadline, l.description, l.visibility, CAST(l.task AS text), coalesce(b.version, 0)
			FROM lb.leaderboard l LEFT JOIN own.board b ON b.leaderboard_id = l.id WHERE l.name = $1`, name).Scan(&b.ID, &deadline, &b.Description, &b.Visibility, &column, &version)
		if err != nil {
			return err
		}
		b.Deadline = deadline.Time
		if b.GPUs, err = s.gpus(ctx, tx, b.ID); err != nil {
			return err
		}
		if err := s.readTask(ctx, tx, b, column); err != nil {
			return err
		}
		if b.Limits, err = s.readLimits(ctx, tx, b.ID); err != nil {
			return err
		}
		if b.Ranked, err = s.ranked(ctx, tx, b.ID, version); err != nil {
			return err
		}
		submissions, err := s.submissions(ctx, tx)
		b.Submissions = submissions[b.ID]
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// readTask reads a board's settings and its task, which stands in several tables.
func (s *Store) readTask(ctx context.Context, on database.Querier, b *Board, column string) error {
	set, err := s.settings(ctx, on, b.ID)
	if err != nil {
		return err
	}
	b.Policy, b.ShowCode, b.Reuse = &set.Policy, set.ShowCode, set.Reuse
	if b.Task, err = taskFrom(column, set.harness); err != nil {
		return err
	}
	b.Task.Description, b.Task.GPUs = b.Description, b.GPUs
	return s.db.Each(ctx, on, func(rows *sql.Rows) error {
		var t task.Template
		err := rows.Scan(&t.Language, &t.Text)
		b.Task.Templates = append(b.Task.Templates, t)
		return err
	}, `SELECT lang, code FROM lb.templates WHERE leaderboard_id = $1 ORDER BY id`, b.ID)
}

// Boards lists all boards by name. How many submissions they have may be as of some
// seconds ago where another instance deleted some.
func (s *Store) Boards(ctx context.Context) (boards []Board, err error) {
	err = s.snapshot(ctx, "listing boards", func(tx *sql.Tx) error {
		var versions []int64
		if boards, versions, err = s.boardRows(ctx, tx); err != nil {
			return err
		}
		gpus := map[int64][]string{}
		err := s.db.Each(ctx, tx, func(rows *sql.Rows) error {
			var id int64
			var gpu string
			err := rows.Scan(&id, &gpu)
			gpus[id] = append(gpus[id], gpu)
			return err
		}, `SELECT leaderboard_id, gpu_type FROM lb.gpu_type`)
		if err != nil {
			return err
		}
		submissions, err := s.submissions(ctx, tx)
		for i := range boards {
			b := &boards[i]
			b.GPUs, b.Submissions = slices.Sorted(slices.Values(gpus[b.ID])), submissions[b.ID]
			if err == nil {
				b.Ranked, err = s.ranked(ctx, tx, b.ID, versions[i])
			}
		}
		return err
	})
	return boards, err
}

// boardRows reads the rows of all boards, and their versions.
func (s *Store) boardRows(ctx context.Context, on database.Querier) (boards []Board, versions []int64, err error) {
	err = s.db.Each(ctx, on, func(rows *sql.Rows) error {
		b := Board{Policy: &ranking.Policy{}}
		var deadline database.Stamp
		var version int64
		err := rows.Scan(&b.ID, &b.Name, &deadline, &b.Description, &b.Visibility, &b.Policy.Harness, &b.Policy.Sandbox, &b.Policy.ClearTiming, &b.Policy.Ties, &b.ShowCode, &b.Reuse, &version)
		b.Deadline = deadline.Time
		boards, versions = append(boards, b), append(versions, version)
		return err
	}, `SELECT l.id, l.name, l.deadline, l.description, l.visibility, coalesce(b.harness, ''), coalesce(b.sandbox, ''), coalesce(b.clear_timing, false), coalesce(b.ties, false), coalesce(b.show_code, 'after'), coalesce(b.reuse, false), coalesce(b.version, 0)
		FROM lb.leaderboard l LEFT JOIN own.board b ON b.leaderboard_id = l.id ORDER BY l.name`)
	return boards, versions, err
}

func (s *Store) gpus(ctx context.Context, on database.Querier, board int64) ([]string, error) {
	gpus, err := database.Values[string](ctx, s.db, on, `SELECT gpu_type FROM lb.gpu_type WHERE leaderboard_id = $1`, board)
	slices.Sort(gpus)
	return gpus, err
}

// CloseBoard ends a board: its deadline is at, if it is not earlier anyway.
//
// Errors: [ErrNotFound].
func (s *Store) CloseBoard(ctx context.Context, name string, at time.Time) error {
	return s.change(ctx, "closing board "+text.Quote(name), func(tx *sql.Tx) error {
		n, err := s.db.Exec(ctx, tx, `UPDATE lb.leaderboard SET deadline = CASE WHEN deadline < $2 THEN deadline ELSE $2 END WHERE name = $1`, name, database.Stamp{Time: at})
		if err == nil && n == 0 {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
		return s.tell(ctx, tx, Signal{Kind: SignalBoard, ID: name})
	})
}

// DeleteBoard removes a board, with force also one that has submissions, and them
// with it. It returns how many those are.
//
// Errors: [ErrNotFound].
func (s *Store) DeleteBoard(ctx context.Context, name string, force bool) (submissions int, err error) {
	err = s.change(ctx, "deleting board "+text.Quote(name), func(tx *sql.Tx) error {
		var id int64
		if err := s.db.Row(ctx, tx, `SELECT id FROM lb.leaderboard WHERE name = $1`, name).Scan(&id); err != nil {
			return err
		}
		if err := s.lockWhole(ctx, tx, id); err != nil {
			return err
		}
		if err := s.db.Row(ctx, tx, `SELECT count(*) FROM lb.submission WHERE leaderboard_id = $1`, id).Scan(&submissions); err != nil {
			return err
		}
		if submissions > 0 && !force {
			return fmt.Errorf("it has submissions: %d", submissions)
		}
		if err := s.deleteBoard(ctx, tx, id); err != nil {
			return err
		}
		return s.tell(ctx, tx, Signal{Kind: SignalBoard, ID: name})
	})
	s.counts.forget()
	return submissions, err
}

func (s *Store) deleteBoard(ctx context.Context, tx *sql.Tx, id int64) error {
	for _, statement := range []string{
		`DELETE FROM lb.runs WHERE submission_id IN (SELECT id FROM lb.submission WHERE leaderboard_id = $1)`,
		`DELETE FROM lb.submission WHERE leaderboard_id = $1`,
		`DELETE FROM lb.templates WHERE leaderboard_id = $1`,
		`DELETE FROM lb.leaderboard WHERE id = $1`,
	} {
		if _, err := s.db.Exec(ctx, tx, statement, id); err != nil {
			return err
		}
	}
	return nil
}

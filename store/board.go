package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
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

	Task   *task.Task // nil when read
	Policy *Policy    // nil leaves what is there
	Limits []Limit    // nil leaves what is there

	ShowCode string
	Reuse    bool

	ID          int64 // these three when read
	Submissions int
	Ranked      int // standings on all GPU types
}

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
		if p.Sandbox != "" && level(p.Sandbox) < 0 {
			fault("sandbox: got %s, want one of %s", text.Quote(p.Sandbox), strings.Join(schema.SandboxLevels(), ", "))
		}
	}
	for _, l := range b.Limits {
		if l.PerHour < 0 || l.PerHour > 1e6 || l.Category != schema.ModeTest && l.Category != schema.ModeLeaderboard || l.GPU != "" && !slices.Contains(b.GPUs, l.GPU) {
			fault("limit %s=%d: want %s or %s, 0 to 1000000 an hour, and a GPU type of the board", text.Quote(l.Category), l.PerHour, schema.ModeTest, schema.ModeLeaderboard)
		}
	}
	return errors.Join(faults...)
}

// SaveOptions say how far [Store.SaveBoards] goes.
type SaveOptions struct {
	New    bool // a board that exists is an error
	Force  bool // also changes that make earlier results incomparable
	DryRun bool // says what would change
}

var errDryRun = errors.New("dry run")

// SaveBoards creates boards and brings those that exist to what is wanted: all of
// them or none. Without Force, files, config, lang and benchmarks of a board that
// has submissions stay as they are.
//
// Errors: every fault of every board, joined.
func (s *Store) SaveBoards(ctx context.Context, boards []Board, opts SaveOptions) (changes []Change, err error) {
	var faults []error
	for i := range boards {
		if err := boards[i].check(); err != nil {
			faults = append(faults, err)
		}
		if slices.ContainsFunc(boards[:i], func(b Board) bool { return b.Name == boards[i].Name }) {
			faults = append(faults, fmt.Errorf("board %s: it is there twice", text.Quote(boards[i].Name)))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	err = s.change(ctx, "saving boards", func(tx *sql.Tx) error {
		changes = nil
		var faults []error
		for i := range boards {
			c, err := s.saveBoard(ctx, tx, &boards[i], opts)
			if err != nil {
				faults = append(faults, fmt.Errorf("board %s: %w", text.Quote(boards[i].Name), err))
				break // PostgreSQL does nothing more in this transaction
			}
			changes = append(changes, c)
		}
		if err := errors.Join(faults...); err != nil || !opts.DryRun {
			return err
		}
		return errDryRun
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	return changes, err
}

func (s *Store) saveBoard(ctx context.Context, tx *sql.Tx, b *Board, opts SaveOptions) (Change, error) {
	c := Change{Board: b.Name, What: "unchanged"}
	column, err := taskColumn(b.Task)
	if err != nil {
		return c, err
	}
	if b.Visibility == "" {
		b.Visibility = Public
	}
	var id int64
	var deadline stamp
	var kept, description, visibility string
	err = s.row(ctx, tx, `SELECT id, deadline, CAST(task AS text), description, visibility FROM lb.leaderboard WHERE name = $1 {lock}`, b.Name).Scan(&id, &deadline, &kept, &description, &visibility)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		seed, err := rand.Int(rand.Reader, big.NewInt(1<<31))
		if err != nil {
			return c, err
		}
		c.What = "created"
		err = s.row(ctx, tx, `INSERT INTO lb.leaderboard (name, deadline, task, creator_id, forum_id, secret_seed, description, visibility) VALUES ($1, $2, $3, -1, -1, $4, $5, $6) RETURNING id`,
			b.Name, stamp{b.Deadline}, column, seed.Int64(), b.Description, b.Visibility).Scan(&id)
		if err != nil {
			return c, err
		}
	case err != nil:
		return c, err
	case opts.New:
		return c, fmt.Errorf("it exists")
	default:
		hard, soft, err := changedKeys(kept, column)
		if err != nil {
			return c, err
		}
		var used bool
		if err := s.row(ctx, tx, `SELECT count(*) > 0 FROM (SELECT id FROM lb.submission WHERE leaderboard_id = $1 LIMIT 1) s`, id).Scan(&used); err != nil {
			return c, err
		}
		if used && len(hard) > 0 && !opts.Force {
			return c, fmt.Errorf("%s would change, and it has submissions: their results could not be compared any more", strings.Join(hard, ", "))
		}
		c.Parts = append(hard, soft...)
		if !deadline.Equal(b.Deadline.Truncate(time.Microsecond)) {
			c.Parts = append(c.Parts, "deadline")
		}
		if description != b.Description {
			c.Parts = append(c.Parts, "description")
		}
		if visibility != b.Visibility {
			c.Parts = append(c.Parts, "visibility")
		}
		if len(c.Parts) > 0 {
			_, err := s.exec(ctx, tx, `UPDATE lb.leaderboard SET deadline = $2, task = $3, description = $4, visibility = $5 WHERE id = $1`, id, stamp{b.Deadline}, column, b.Description, b.Visibility)
			if err != nil {
				return c, err
			}
		}
	}
	more, err := s.saveParts(ctx, tx, id, b)
	if err != nil {
		return c, err
	}
	if c.What == "unchanged" {
		if c.Parts = append(c.Parts, more...); len(c.Parts) > 0 {
			c.What = "changed"
		}
	}
	return c, nil
}

// saveParts writes what stands in tables beside the board's row.
func (s *Store) saveParts(ctx context.Context, tx *sql.Tx, id int64, b *Board) (changed []string, err error) {
	do := func(statement string, args ...any) {
		if err == nil {
			_, err = s.exec(ctx, tx, statement, append([]any{id}, args...)...)
		}
	}
	have, err := s.gpus(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	if want := slices.Sorted(slices.Values(b.GPUs)); !slices.Equal(have, want) {
		changed = append(changed, "gpus")
		do(`DELETE FROM lb.gpu_type WHERE leaderboard_id = $1`)
		for _, gpu := range want {
			do(`INSERT INTO lb.gpu_type (leaderboard_id, gpu_type) VALUES ($1, $2)`, gpu)
		}
	}
	templates := map[string]string{}
	if err == nil {
		err = s.each(ctx, tx, func(rows *sql.Rows) error {
			var lang, code string
			err := rows.Scan(&lang, &code)
			templates[lang] = code
			return err
		}, `SELECT lang, code FROM lb.templates WHERE leaderboard_id = $1`, id)
	}
	differ := len(templates) != len(b.Task.Templates)
	for _, t := range b.Task.Templates {
		differ = differ || templates[t.Language] != t.Text
	}
	if differ {
		changed = append(changed, "templates")
		do(`DELETE FROM lb.templates WHERE leaderboard_id = $1`)
		for _, t := range b.Task.Templates {
			do(`INSERT INTO lb.templates (leaderboard_id, lang, code) VALUES ($1, $2, $3)`, t.Language, t.Text)
		}
	}
	if b.Limits != nil {
		changed = append(changed, "limits")
		do(`DELETE FROM lb.rate_limit WHERE leaderboard_id = $1`)
		do(`DELETE FROM own.gpu_limit WHERE leaderboard_id = $1`)
		for _, l := range b.Limits {
			if l.GPU == "" {
				do(`INSERT INTO lb.rate_limit (leaderboard_id, mode_category, max_submissions_per_hour) VALUES ($1, $2, $3)`, l.Category, l.PerHour)
			} else {
				do(`INSERT INTO own.gpu_limit (leaderboard_id, gpu, mode_category, per_hour) VALUES ($1, $2, $3, $4)`, l.GPU, l.Category, l.PerHour)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if b.Policy == nil {
		return changed, nil
	}
	old, err := s.policy(ctx, tx, id)
	if err != nil || old == *b.Policy {
		return changed, err
	}
	p := b.Policy
	do(`DELETE FROM own.board WHERE leaderboard_id = $1`)
	do(`INSERT INTO own.board (leaderboard_id, harness, sandbox, clear_timing, ties) VALUES ($1, $2, $3, $4, $5)`, p.Harness, p.Sandbox, p.ClearTiming, p.Ties)
	if err != nil {
		return nil, err
	}
	return append(changed, "policy"), s.rejudge(ctx, tx, id)
}

func (s *Store) policy(ctx context.Context, on querier, id int64) (p Policy, err error) {
	err = s.row(ctx, on, `SELECT harness, sandbox, clear_timing, ties FROM own.board WHERE leaderboard_id = $1`, id).Scan(&p.Harness, &p.Sandbox, &p.ClearTiming, &p.Ties)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return p, err
}

// rejudge applies a board's policy to what it has.
func (s *Store) rejudge(ctx context.Context, tx *sql.Tx, board int64) error {
	var ids []int64
	err := s.each(ctx, tx, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	}, `SELECT id FROM lb.submission WHERE leaderboard_id = $1 ORDER BY user_id, id`, board) // users in one order: no deadlock
	for i := 0; err == nil && i < len(ids); i++ {
		if err = s.lockOwner(ctx, tx, ids[i]); err == nil {
			err = s.judge(ctx, tx, ids[i])
		}
	}
	return err
}

func (s *Store) gpus(ctx context.Context, on querier, board int64) (gpus []string, err error) {
	err = s.each(ctx, on, func(rows *sql.Rows) error {
		var gpu string
		err := rows.Scan(&gpu)
		gpus = append(gpus, gpu)
		return err
	}, `SELECT gpu_type FROM lb.gpu_type WHERE leaderboard_id = $1`, board)
	slices.Sort(gpus)
	return gpus, err
}

// Boards lists all boards by name.
func (s *Store) Boards(ctx context.Context) (boards []Board, err error) {
	err = s.snapshot(ctx, "listing boards", func(tx *sql.Tx) error {
		boards = nil
		err := s.each(ctx, tx, func(rows *sql.Rows) error {
			var b Board
			var deadline stamp
			err := rows.Scan(&b.ID, &b.Name, &deadline, &b.Description, &b.Visibility, &b.Submissions, &b.Ranked)
			b.Deadline = deadline.Time
			boards = append(boards, b)
			return err
		}, `SELECT l.id, l.name, l.deadline, l.description, l.visibility, (SELECT count(*) FROM lb.submission s WHERE s.leaderboard_id = l.id), (SELECT count(*) FROM own.standing t WHERE t.leaderboard_id = l.id) FROM lb.leaderboard l ORDER BY l.name`)
		for i := range boards {
			if err == nil {
				boards[i].GPUs, err = s.gpus(ctx, tx, boards[i].ID)
			}
			if err == nil {
				var p Policy
				p, err = s.policy(ctx, tx, boards[i].ID)
				boards[i].Policy = &p
			}
		}
		return err
	})
	return boards, err
}

// CloseBoard ends a board: its deadline is at, if it is not earlier anyway.
//
// Errors: [ErrNotFound].
func (s *Store) CloseBoard(ctx context.Context, name string, at time.Time) error {
	return s.change(ctx, "closing board "+text.Quote(name), func(tx *sql.Tx) error {
		n, err := s.exec(ctx, tx, `UPDATE lb.leaderboard SET deadline = CASE WHEN deadline < $2 THEN deadline ELSE $2 END WHERE name = $1`, name, stamp{at})
		if err == nil && n == 0 {
			err = ErrNotFound
		}
		return err
	})
}

// DeleteBoard removes a board, with force also one that has submissions, and them
// with it. It returns how many those are.
//
// Errors: [ErrNotFound].
func (s *Store) DeleteBoard(ctx context.Context, name string, force bool) (submissions int, err error) {
	err = s.change(ctx, "deleting board "+text.Quote(name), func(tx *sql.Tx) error {
		var id int64
		if err := s.row(ctx, tx, `SELECT id FROM lb.leaderboard WHERE name = $1 {lock}`, name).Scan(&id); err != nil {
			return err
		}
		if err := s.row(ctx, tx, `SELECT count(*) FROM lb.submission WHERE leaderboard_id = $1`, id).Scan(&submissions); err != nil {
			return err
		}
		if submissions > 0 && !force {
			return fmt.Errorf("it has submissions: %d", submissions)
		}
		for _, statement := range []string{
			`DELETE FROM lb.runs WHERE submission_id IN (SELECT id FROM lb.submission WHERE leaderboard_id = $1)`,
			`DELETE FROM lb.submission WHERE leaderboard_id = $1`,
			`DELETE FROM lb.templates WHERE leaderboard_id = $1`,
			`DELETE FROM lb.leaderboard WHERE id = $1`,
		} {
			if _, err := s.exec(ctx, tx, statement, id); err != nil {
				return err
			}
		}
		return nil
	})
	return submissions, err
}

package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/ranking"
)

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
	err = s.db.Row(ctx, tx, `SELECT id FROM lb.leaderboard WHERE name = $1 {lock but for references}`, b.Name).Scan(&id)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		c.What = "created"
		id, err = s.insertBoard(ctx, tx, b, column)
	case err == nil && opts.New:
		err = fmt.Errorf("it exists")
	case err == nil:
		c.Parts, err = s.updateBoard(ctx, tx, id, b, column, opts.Force)
	}
	if err != nil {
		return c, err
	}
	more, err := s.saveParts(ctx, tx, id, b)
	if err != nil {
		return c, err
	}
	if c.What == "unchanged" {
		if c.Parts = append(c.Parts, more...); len(c.Parts) == 0 {
			return c, nil
		}
		c.What = "changed"
	}
	return c, s.tell(ctx, tx, Signal{Kind: SignalBoard, ID: b.Name})
}

func (s *Store) insertBoard(ctx context.Context, tx *sql.Tx, b *Board, column string) (id int64, err error) {
	seed, err := rand.Int(rand.Reader, big.NewInt(1<<31))
	if err != nil {
		return 0, err
	}
	err = s.db.Row(ctx, tx, `INSERT INTO lb.leaderboard (name, deadline, task, creator_id, forum_id, secret_seed, description, visibility) VALUES ($1, $2, $3, -1, -1, $4, $5, $6) RETURNING id`,
		b.Name, database.Stamp{Time: b.Deadline}, column, seed.Int64(), b.Description, b.Visibility).Scan(&id)
	return id, err
}

// updateBoard brings the board's own row to what is wanted and says what differed.
func (s *Store) updateBoard(ctx context.Context, tx *sql.Tx, id int64, b *Board, column string, force bool) (parts []string, err error) {
	var deadline database.Stamp
	var kept, description, visibility string
	err = s.db.Row(ctx, tx, `SELECT deadline, CAST(task AS text), description, visibility FROM lb.leaderboard WHERE id = $1`, id).Scan(&deadline, &kept, &description, &visibility)
	if err != nil {
		return nil, err
	}
	hard, soft, err := changedKeys(kept, column)
	if err != nil {
		return nil, err
	}
	var used bool
	if err := s.db.Row(ctx, tx, `SELECT count(*) > 0 FROM (SELECT id FROM lb.submission WHERE leaderboard_id = $1 LIMIT 1) s`, id).Scan(&used); err != nil {
		return nil, err
	}
	if used && len(hard) > 0 && !force {
		return nil, fmt.Errorf("%s would change, and it has submissions: their results could not be compared any more", strings.Join(hard, ", "))
	}
	parts = append(hard, soft...)
	if !deadline.Equal(b.Deadline.Truncate(time.Microsecond)) {
		parts = append(parts, "deadline")
	}
	if description != b.Description {
		parts = append(parts, "description")
	}
	if visibility != b.Visibility {
		parts = append(parts, "visibility")
	}
	if len(parts) > 0 {
		_, err = s.db.Exec(ctx, tx, `UPDATE lb.leaderboard SET deadline = $2, task = $3, description = $4, visibility = $5 WHERE id = $1`, id, database.Stamp{Time: b.Deadline}, column, b.Description, b.Visibility)
	}
	return parts, err
}

// saveParts writes what stands in tables beside the board's row.
func (s *Store) saveParts(ctx context.Context, tx *sql.Tx, id int64, b *Board) (changed []string, err error) {
	do := func(statement string, args ...any) {
		if err == nil {
			_, err = s.db.Exec(ctx, tx, statement, append([]any{id}, args...)...)
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
	if err == nil {
		var differ bool
		if differ, err = s.templatesDiffer(ctx, tx, id, b.Task.Templates); differ {
			changed = append(changed, "templates")
			do(`DELETE FROM lb.templates WHERE leaderboard_id = $1`)
			for _, t := range b.Task.Templates {
				do(`INSERT INTO lb.templates (leaderboard_id, lang, code) VALUES ($1, $2, $3)`, t.Language, t.Text)
			}
		}
	}
	if err == nil && b.Limits != nil {
		var have []Limit
		have, err = s.readLimits(ctx, tx, id)
		order := func(a, b Limit) int { return strings.Compare(a.GPU+"\x00"+a.Category, b.GPU+"\x00"+b.Category) }
		if want := slices.SortedFunc(slices.Values(b.Limits), order); err == nil && !slices.Equal(have, want) {
			changed = append(changed, "limits")
			err = s.saveLimits(ctx, tx, id, want)
		}
	}
	if err != nil {
		return nil, err
	}
	more, err := s.saveSettings(ctx, tx, id, b)
	return append(changed, more...), err
}

func (s *Store) templatesDiffer(ctx context.Context, on database.Querier, board int64, wanted []task.Template) (bool, error) {
	have := map[string]string{}
	err := s.db.Each(ctx, on, func(rows *sql.Rows) error {
		var lang, code string
		err := rows.Scan(&lang, &code)
		have[lang] = code
		return err
	}, `SELECT lang, code FROM lb.templates WHERE leaderboard_id = $1`, board)
	differ := len(have) != len(wanted)
	for _, t := range wanted {
		differ = differ || have[t.Language] != t.Text
	}
	return differ && err == nil, err
}

// saveSettings writes the row of ours beside the board's.
func (s *Store) saveSettings(ctx context.Context, tx *sql.Tx, id int64, b *Board) (changed []string, err error) {
	old, err := s.settings(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	wanted := old
	if wanted.harness = b.Task.Harness; wanted.harness != old.harness {
		changed = append(changed, "task_harness")
	}
	if b.ShowCode != "" {
		if wanted.ShowCode = b.ShowCode; wanted.ShowCode != old.ShowCode {
			changed = append(changed, "show_code")
		}
		if wanted.Reuse = b.Reuse; wanted.Reuse != old.Reuse {
			changed = append(changed, "reuse")
		}
	}
	if b.Policy != nil {
		wanted.Policy = *b.Policy
	}
	ranking := wanted.Policy != old.Policy
	if ranking {
		changed = append(changed, "policy")
		if _, err := s.lockOwners(ctx, tx, id); err != nil { // before the board's own row: whoever judges has locked them in this order
			return nil, err
		}
	}
	if len(changed) == 0 {
		return nil, nil
	}
	_, err = s.db.Exec(ctx, tx, `INSERT INTO own.board (leaderboard_id, harness, sandbox, clear_timing, ties, task_harness, show_code, reuse, version) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1)
		ON CONFLICT (leaderboard_id) DO UPDATE SET harness = excluded.harness, sandbox = excluded.sandbox, clear_timing = excluded.clear_timing, ties = excluded.ties,
			task_harness = excluded.task_harness, show_code = excluded.show_code, reuse = excluded.reuse, version = own.board.version + 1`,
		id, wanted.Harness, wanted.Sandbox, wanted.ClearTiming, wanted.Ties, wanted.harness, wanted.ShowCode, wanted.Reuse)
	if err == nil && ranking {
		err = s.rejudge(ctx, tx, id)
	}
	return changed, err
}

// settings are the row of ours beside a board's.
type settings struct {
	ranking.Policy
	harness  string // of the task
	ShowCode string
	Reuse    bool
}

func (s *Store) settings(ctx context.Context, on database.Querier, id int64) (settings, error) {
	x := settings{ShowCode: CodeAfter}
	err := s.db.Row(ctx, on, `SELECT harness, sandbox, clear_timing, ties, task_harness, show_code, reuse FROM own.board WHERE leaderboard_id = $1`, id).
		Scan(&x.Harness, &x.Sandbox, &x.ClearTiming, &x.Ties, &x.harness, &x.ShowCode, &x.Reuse)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return x, err
}

// lockOwners locks everybody who has submitted to a board, in one order for all
// who do so.
func (s *Store) lockOwners(ctx context.Context, tx *sql.Tx, board int64) (ids []string, err error) {
	return database.Values[string](ctx, s.db, tx, `SELECT id FROM lb.user_info WHERE id IN (SELECT user_id FROM lb.submission WHERE leaderboard_id = $1) ORDER BY id {lock}`, board)
}

// lockWhole locks a board that is about to go, so that nobody submits to it or
// records a result: first its users, as all others do, then itself.
//
// Errors: database.ErrConflict when a new user came between the two.
func (s *Store) lockWhole(ctx context.Context, tx *sql.Tx, board int64) error {
	locked, err := s.lockOwners(ctx, tx, board)
	if err != nil || s.db.Kind == database.SQLite {
		return err
	}
	var id int64
	if err := s.db.Row(ctx, tx, `SELECT id FROM lb.leaderboard WHERE id = $1 {lock}`, board).Scan(&id); err != nil {
		return err
	}
	var now int
	if err := s.db.Row(ctx, tx, `SELECT count(DISTINCT user_id) FROM lb.submission WHERE leaderboard_id = $1`, board).Scan(&now); err != nil {
		return err
	}
	if now != len(locked) {
		return database.ErrConflict
	}
	return nil
}

// rejudge applies a board's policy to what it has. The caller has locked the users.
func (s *Store) rejudge(ctx context.Context, tx *sql.Tx, board int64) error {
	ids, err := database.Values[int64](ctx, s.db, tx, `SELECT id FROM lb.submission WHERE leaderboard_id = $1 ORDER BY id`, board)
	for i := 0; err == nil && i < len(ids); i++ {
		err = s.judge(ctx, tx, ids[i])
	}
	return err
}

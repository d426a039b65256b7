package store

import (
	"cmp"
	"context"
	"crypto/rand"
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
	By     Author
}

// An Author is who changes a board and why, for the board's history.
type Author struct{ Name, Reason string }

var errDryRun = errors.New("dry run")

// SaveBoards creates boards and brings those that exist to what is wanted: all of
// them or none. What a board leaves empty keeps its value. Without Force, files,
// config, lang and benchmarks of a board that has submissions stay as they are.
//
// Errors: [*Refusal] with Invalid, which lists every fault of every board.
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
		return nil, NewRefusal(Invalid, "%v", err)
	}
	err = s.change(ctx, "saving boards", func(t *tx) {
		changes = nil
		for i := range boards {
			c := t.saveBoard(&boards[i], opts)
			if refused, ok := errors.AsType[*Refusal](t.err); ok {
				t.err = NewRefusal(refused.Why, "board %s: %s", text.Quote(boards[i].Name), refused.Text)
			}
			if t.err != nil {
				return
			}
			changes = append(changes, c)
		}
		if opts.DryRun {
			t.fail(errDryRun)
		}
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	return changes, err
}

func (t *tx) saveBoard(b *Board, opts SaveOptions) Change {
	c := Change{Board: b.Name, What: "unchanged"}
	var id int64
	found := t.find(dest{&id}, `SELECT id FROM lb.leaderboard WHERE name = $1 {lock but for references}`, b.Name)
	switch {
	case !found && b.Task == nil:
		t.refuse(Invalid, "task: want one")
	case found && opts.New:
		t.refuse(Invalid, "it exists")
	case !found:
		c.What = "created"
		id = t.insertBoard(b)
	default:
		c.Parts = t.updateBoard(id, b, opts.Force)
	}
	c.Parts = append(c.Parts, t.saveParts(id, b)...)
	if !found {
		c.Parts = nil
	} else if len(c.Parts) == 0 {
		return c
	} else {
		c.What = "changed"
		t.record(id, c.Parts, opts.By)
	}
	t.moved(`l.id = $1`, id)
	return c
}

func (t *tx) insertBoard(b *Board) (id int64) {
	seed, err := rand.Int(rand.Reader, big.NewInt(1<<31))
	if err != nil {
		t.fail(err)
		return 0
	}
	column, err := taskColumn(b.Task)
	if err != nil {
		t.fail(err)
	}
	t.get(dest{&id}, `INSERT INTO lb.leaderboard (name, deadline, task, creator_id, forum_id, secret_seed, description, visibility) VALUES ($1, $2, $3, -1, -1, $4, $5, $6) RETURNING id`,
		b.Name, b.Deadline, column, seed.Int64(), b.Description, cmp.Or(b.Visibility, Public))
	return id
}

// updateBoard brings the board's own row to what is wanted and says what differed.
func (t *tx) updateBoard(id int64, b *Board, force bool) (parts []Edit) {
	var deadline time.Time
	var column, description, visibility string
	t.get(dest{&deadline, &column, &description, &visibility}, `SELECT deadline, CAST(task AS text), description, visibility FROM lb.leaderboard WHERE id = $1`, id)
	if b.Task != nil {
		wanted, err := taskColumn(b.Task)
		var hard, soft []string
		if err == nil && t.err == nil {
			hard, soft, err = changedKeys(column, wanted)
		}
		if err != nil {
			t.fail(err)
			return nil
		}
		used := value[bool](t, `SELECT count(*) > 0 FROM (SELECT id FROM lb.submission WHERE leaderboard_id = $1 LIMIT 1) s`, id)
		if used && len(hard) > 0 && !force {
			t.refuse(Invalid, "%s would change, and it has submissions: their results could not be compared any more", strings.Join(hard, ", "))
		}
		column = wanted
		for _, key := range append(hard, soft...) {
			parts = append(parts, Edit{Field: key})
		}
		if description != b.Description {
			description = b.Description
			parts = append(parts, Edit{Field: "description"})
		}
	}
	if wanted := b.Deadline.UTC().Truncate(time.Microsecond); !deadline.Equal(wanted) {
		parts = append(parts, Edit{"deadline", deadline.UTC().Format(time.RFC3339), wanted.Format(time.RFC3339)})
	}
	if wanted := cmp.Or(b.Visibility, visibility); wanted != visibility {
		parts = append(parts, Edit{"visibility", visibility, wanted})
		visibility = wanted
	}
	if len(parts) > 0 {
		t.exec(`UPDATE lb.leaderboard SET deadline = $2, task = $3, description = $4, visibility = $5 WHERE id = $1`, id, b.Deadline, column, description, visibility)
	}
	return parts
}

// saveParts writes what stands in tables beside the board's row.
func (t *tx) saveParts(id int64, b *Board) (parts []Edit) {
	have, want := t.gpus(id), slices.Sorted(slices.Values(b.GPUs))
	if !slices.Equal(have, want) {
		parts = append(parts, Edit{"gpus", strings.Join(have, ", "), strings.Join(want, ", ")})
		t.exec(`DELETE FROM lb.gpu_type WHERE leaderboard_id = $1`, id)
		for _, gpu := range want {
			t.exec(`INSERT INTO lb.gpu_type (leaderboard_id, gpu_type) VALUES ($1, $2)`, id, gpu)
		}
	}
	if b.Task != nil && t.templatesDiffer(id, b.Task.Templates) {
		parts = append(parts, Edit{Field: "templates"})
		t.exec(`DELETE FROM lb.templates WHERE leaderboard_id = $1`, id)
		for _, template := range b.Task.Templates {
			t.exec(`INSERT INTO lb.templates (leaderboard_id, lang, code) VALUES ($1, $2, $3)`, id, template.Language, template.Text)
		}
	}
	if b.Limits != nil {
		order := func(a, b Limit) int { return strings.Compare(a.GPU+"\x00"+a.Category, b.GPU+"\x00"+b.Category) }
		if have, want := t.readLimits(id), slices.SortedFunc(slices.Values(b.Limits), order); !slices.Equal(have, want) {
			parts = append(parts, Edit{"limits", limitList(have), limitList(want)})
			t.saveLimits(id, want)
		}
	}
	return append(parts, t.saveSettings(id, b)...)
}

func limitList(limits []Limit) string {
	words := make([]string, len(limits))
	for i, l := range limits {
		words[i] = l.String()
	}
	return strings.Join(words, " ")
}

func (t *tx) templatesDiffer(board int64, wanted []task.Template) bool {
	have := map[string]string{}
	var lang, code string
	t.each(dest{&lang, &code}, func() { have[lang] = code }, `SELECT lang, code FROM lb.templates WHERE leaderboard_id = $1`, board)
	differ := len(have) != len(wanted)
	for _, t := range wanted {
		differ = differ || have[t.Language] != t.Text
	}
	return differ
}

// saveSettings writes the row of ours beside the board's.
func (t *tx) saveSettings(id int64, b *Board) (parts []Edit) {
	old := t.settings(id)
	wanted, harness := old, value[string](t, `SELECT coalesce(max(task_harness), '') FROM own.board WHERE leaderboard_id = $1`, id)
	edit := func(field string, old, new any) {
		if old != new {
			parts = append(parts, Edit{field, fmt.Sprint(old), fmt.Sprint(new)})
		}
	}
	if b.Policy != nil {
		wanted.Policy = *b.Policy
	}
	edit("harness", old.Harness, wanted.Harness)
	edit("sandbox", old.Sandbox, wanted.Sandbox)
	edit("clear_timing", old.ClearTiming, wanted.ClearTiming)
	edit("ties", old.Ties, wanted.Ties)
	ranking := len(parts) > 0
	if b.ShowCode != "" {
		wanted.ShowCode, wanted.Reuse = b.ShowCode, b.Reuse
	}
	edit("show_code", old.ShowCode, wanted.ShowCode)
	edit("reuse", old.Reuse, wanted.Reuse)
	if b.Task != nil {
		if wanted.extension = extensionText(b.Task.Extension); wanted.extension != old.extension {
			parts = append(parts, Edit{Field: "task_extension"})
		}
		harness = b.Task.Harness
	}
	if len(parts) == 0 {
		return nil
	}
	if ranking {
		t.lockOwners(id) // before the board's row: judging locks them in this order
	}
	t.exec(`INSERT INTO own.board (leaderboard_id, harness, sandbox, clear_timing, ties, task_harness, task_extension, show_code, reuse, version) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1)
		ON CONFLICT (leaderboard_id) DO UPDATE SET harness = excluded.harness, sandbox = excluded.sandbox, clear_timing = excluded.clear_timing, ties = excluded.ties,
			task_harness = excluded.task_harness, task_extension = excluded.task_extension, show_code = excluded.show_code, reuse = excluded.reuse, version = own.board.version + 1`,
		id, wanted.Harness, wanted.Sandbox, wanted.ClearTiming, wanted.Ties, harness, wanted.extension, wanted.ShowCode, wanted.Reuse)
	if ranking { // the users are locked
		for _, id := range values[int64](t, `SELECT id FROM lb.submission WHERE leaderboard_id = $1 ORDER BY id`, id) {
			t.judge(id)
		}
	}
	return parts
}

// settings are the row of ours beside a board's.
type settings struct {
	ranking.Policy
	extension string // see extensionText
	ShowCode  string
	Reuse     bool
}

func (t *tx) settings(id int64) settings {
	x := settings{ShowCode: CodeAfter}
	t.find(dest{&x.Harness, &x.Sandbox, &x.ClearTiming, &x.Ties, &x.extension, &x.ShowCode, &x.Reuse}, `SELECT harness, sandbox, clear_timing, ties, `+extensionColumn+`, show_code, reuse FROM own.board b WHERE leaderboard_id = $1`, id)
	return x
}

// lockOwners locks everybody who has submitted to a board, in one order for all
// who do so.
func (t *tx) lockOwners(board int64) (ids []string) {
	return values[string](t, `SELECT id FROM lb.user_info WHERE id IN (SELECT user_id FROM lb.submission WHERE leaderboard_id = $1) ORDER BY id {lock}`, board)
}

// lockWhole locks a board that is about to go, so that nobody submits to it or
// records a result: first its users, as all others do, then itself.
//
// Errors: database.ErrConflict when a new user came between the two.
func (t *tx) lockWhole(board int64) {
	locked := t.lockOwners(board)
	if t.db.Kind == database.SQLite {
		return
	}
	value[int64](t, `SELECT id FROM lb.leaderboard WHERE id = $1 {lock}`, board)
	if value[int](t, `SELECT count(DISTINCT user_id) FROM lb.submission WHERE leaderboard_id = $1`, board) != len(locked) {
		t.fail(database.ErrConflict)
	}
}

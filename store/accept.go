package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
)

// MaxCode is the size of a submission's file, in bytes, as in Kernelbot.
const MaxCode = 1_000_000

const maxName = 255 // of a file or a user, in bytes

// A Submission is what somebody handed in. Board, GPU and Mode are spelt as the
// board has them; Mode is one of schema.Modes but private.
type Submission struct {
	Board, GPU, Mode string

	UserID   string // decimal digits
	UserName string // "" keeps the name that is known
	FileName string // only its base name is kept
	Code     []byte // UTF-8 without U+0000, at most MaxCode bytes

	Time     time.Time // of arrival
	AnyTime  bool      // an admin's: also after the deadline; it does not rank then
	NoLimits bool      // an admin's: not counted against limits
	Fresh    bool      // is evaluated, also where the board takes the result that the same text has
	Check    bool      // is not evaluated before [Store.Decide] accepts it, and an event tells how it ended

	Priority int // smaller goes first; 0 is the usual
}

// Accepted says under which ids a submission is kept.
type Accepted struct {
	ID          int64 // of the submission
	JobStatusID int64
	RunIDs      []string // of the planned runs, in order
}

var userID = regexp.MustCompile(`^[0-9]{1,20}$`)

// Accept stores a submission with its code, job status and planned runs: all of
// it or nothing. When it returns, nothing of it can be lost.
//
// Errors: [*Refusal].
func (s *Store) Accept(ctx context.Context, in Submission) (out Accepted, err error) {
	if err := in.check(); err != nil {
		return out, err
	}
	err = s.change(ctx, "accepting a submission", func(t *tx) {
		out = Accepted{}
		board, late := t.admit(&in)
		code := t.keepCode(in.Code)
		t.get(dest{&out.ID}, `INSERT INTO lb.submission (leaderboard_id, file_name, user_id, code_id, submission_time, mode_category) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id`,
			board, in.FileName, in.UserID, code, in.Time, category(in.Mode))
		now := s.now()
		t.get(dest{&out.JobStatusID}, `INSERT INTO lb.submission_job_status (submission_id, status, created_at, last_heartbeat) VALUES ($1, $2, $3, $3) RETURNING id`,
			out.ID, StatusPending, now)
		digest := t.taskDigest(board)
		t.exec(`INSERT INTO own.accepted (submission_id, gpu, mode, late, task) VALUES ($1, $2, $3, $4, $5)`, out.ID, in.GPU, in.Mode, late, digest)
		if reused := t.reuse(&in, out.ID, board, code, digest); reused != "" {
			out.RunIDs = append(out.RunIDs, reused)
			return
		}
		out.RunIDs = t.plan([]job{{out.ID, in.GPU, in.Mode}}, in.Priority, "")
		if in.Check {
			t.awaitDecision(out.ID)
		}
		t.tell(Signal{Kind: SignalPlanned}, submissionSignal(out.ID))
		t.judge(out.ID)
	})
	return out, err
}

// check looks at what needs no database, and brings names into their kept form.
func (in *Submission) check() error {
	if slash := strings.LastIndexAny(in.FileName, `/\`); slash >= 0 {
		in.FileName = in.FileName[slash+1:]
	}
	in.UserName = text.Shorten(text.Line(in.UserName, maxName), maxName)
	if err := checkUserID(in.UserID); err != nil {
		return err
	}
	switch {
	case len(in.FileName) > maxName || in.FileName != text.Line(in.FileName, maxName):
		return NewRefusal(Invalid, "file name: got %d bytes or characters that cannot be printed, want a plain name of at most %d bytes", len(in.FileName), maxName)
	case !slices.Contains(task.Extensions(), path.Ext(in.FileName)) || in.FileName == path.Ext(in.FileName):
		return NewRefusal(Invalid, "file name: got %s, want one that ends in %s", text.Quote(in.FileName), strings.Join(task.Extensions(), ", "))
	case len(in.Code) == 0:
		return NewRefusal(Invalid, "file: it is empty")
	case len(in.Code) > MaxCode:
		return NewRefusal(Invalid, "file: got %d bytes, want at most %d", len(in.Code), MaxCode)
	case !utf8.Valid(in.Code) || bytes.IndexByte(in.Code, 0) >= 0:
		return NewRefusal(Invalid, "file: want UTF-8 text without U+0000")
	case in.Mode == schema.ModePrivate || !slices.Contains(schema.Modes(), in.Mode):
		return NewRefusal(Invalid, "mode: got %s, want one of test, benchmark, profile, leaderboard", text.Quote(text.Shorten(in.Mode, 40)))
	}
	return nil
}

// category is what limits count a mode under.
func category(mode string) string {
	if mode == schema.ModeLeaderboard {
		return schema.ModeLeaderboard
	}
	return schema.ModeTest
}

// admit checks user, board, GPU, invite, deadline and limits. It locks the user's
// row, so that two submissions of one user are counted one after the other.
func (t *tx) admit(in *Submission) (board int64, late bool) {
	t.upsertUser(in.UserID, in.UserName)
	if t.lockUser(in.UserID) {
		t.refuse(Banned, "you may not submit here any more")
	}
	board = t.boardID(in.Board)
	var deadline time.Time
	var visibility string
	t.get(dest{&deadline, &visibility}, `SELECT deadline, visibility FROM lb.leaderboard WHERE id = $1`, board)
	if visibility != Public && !in.AnyTime {
		if !value[bool](t, `SELECT count(*) > 0 FROM lb.leaderboard_invite i JOIN lb.leaderboard_invite_scope c ON c.invite_id = i.id WHERE i.user_id = $1 AND c.leaderboard_id = $2`, in.UserID, board) {
			t.refuse(NotInvited, "board %s is closed, and you have no invite to it", in.Board)
		}
	}
	if gpus := t.gpus(board); !slices.Contains(gpus, in.GPU) {
		t.refuse(UnknownGPU, "GPU %s: board %s has %s", text.Quote(text.Shorten(in.GPU, 100)), in.Board, strings.Join(gpus, ", "))
	}
	if late = in.Time.After(deadline); late && !in.AnyTime {
		t.refuse(AfterDeadline, "the deadline of board %s was %s", in.Board, deadline.Format(time.RFC3339))
	}
	if !in.NoLimits {
		t.unfinished(in)
		t.limits(board, in)
	}
	return board, late
}

// maxUnfinished is how many runs of one user may be unfinished on one GPU type, on all
// boards together and also on those without limits: what waits is read at every claim
// and shown on pages. A ranked submission has two runs.
const maxUnfinished = 20

// unfinished refuses a submission beyond maxUnfinished. Further evaluations, which
// only admins plan, do not count.
func (t *tx) unfinished(in *Submission) {
	// CROSS JOIN makes SQLite begin with the few unfinished runs, not with all submissions
	// that the user ever made.
	count := value[int](t, `SELECT count(*) FROM own.planned_run p CROSS JOIN lb.submission s
		WHERE s.id = p.submission_id AND s.user_id = $1 AND p.gpu = $2 AND p.state <> 'finished' AND p.again = ''`, in.UserID, in.GPU)
	runs := 1
	if in.Mode == schema.ModeLeaderboard {
		runs = 2
	}
	if count+runs > maxUnfinished {
		t.fail(&Refusal{Why: OverLimit, RetryAfter: time.Minute,
			Text: fmt.Sprintf("limit reached: %d of at most %d runs of yours on %s have not finished; wait until some have, or cancel them", count, maxUnfinished, in.GPU)})
	}
}

// limits counts the user's submissions of the last hour: those of the category on
// the board, and those for the same GPU type.
func (t *tx) limits(board int64, in *Submission) {
	kind, hour := category(in.Mode), in.Time.Add(-time.Hour)
	for _, limit := range []struct{ most, gpu, what string }{
		{`SELECT max_submissions_per_hour FROM lb.rate_limit WHERE leaderboard_id = $1 AND mode_category = $2 AND $3 = ''`, "", "an hour"},
		{`SELECT per_hour FROM own.gpu_limit WHERE leaderboard_id = $1 AND mode_category = $2 AND gpu = $3`, in.GPU, "an hour on " + in.GPU},
	} {
		var most int
		if !t.find(dest{&most}, limit.most, board, kind, limit.gpu) {
			continue
		}
		var oldest time.Time
		var count int
		t.get(dest{&count, &oldest}, `SELECT count(*), min(s.submission_time) FROM lb.submission s LEFT JOIN own.accepted a ON a.submission_id = s.id
			WHERE s.user_id = $1 AND s.leaderboard_id = $2 AND s.mode_category = $3 AND s.submission_time > $4 AND ($5 = '' OR a.gpu = $5)`,
			in.UserID, board, kind, hour, limit.gpu)
		if count < most {
			continue
		}
		if most == 0 {
			on := ""
			if limit.gpu != "" {
				on = " on " + limit.gpu
			}
			t.fail(&Refusal{Why: OverLimit, RetryAfter: time.Hour, Text: fmt.Sprintf("limit reached: board %s takes no %s submissions%s", in.Board, kind, on)})
			return
		}
		wait := time.Hour
		if count > 0 {
			wait = max(oldest.Sub(hour), time.Second).Round(time.Second)
		}
		t.fail(&Refusal{Why: OverLimit, RetryAfter: wait,
			Text: fmt.Sprintf("limit reached: %d of %d %s submissions %s; try again in %d s", count, most, kind, limit.what, int(wait.Seconds()))})
	}
}

// keepCode returns the id of a file with this text, which is kept once. Two that
// come at the same time become one.
func (t *tx) keepCode(code []byte) (id int64) {
	hash := fmt.Sprintf("%x", sha256.Sum256(code))
	if t.db.Kind == database.SQLite {
		t.exec(`INSERT INTO lb.code_files (code, hash) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING`, code, hash)
	} else { // its hash is generated; looked for first, as a conflict burns an id
		if t.find(dest{&id}, `SELECT id FROM lb.code_files WHERE hash = $1`, hash) {
			return id
		}
		t.exec(`INSERT INTO lb.code_files (code) VALUES ($1) ON CONFLICT (hash) DO NOTHING`, code)
	}
	return value[int64](t, `SELECT id FROM lb.code_files WHERE hash = $1`, hash)
}

// reuseTime is how old a result may be that stands for a new evaluation: machines
// and runners change.
const reuseTime = 24 * time.Hour

// taskDigest names a board's task as it is now, with what judges it.
func (t *tx) taskDigest(board int64) string {
	var text, extension string
	t.get(dest{&text, &extension}, `SELECT CAST(l.task AS text), `+extensionColumn+` FROM lb.leaderboard l LEFT JOIN own.board b ON b.leaderboard_id = l.id WHERE l.id = $1`, board)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(extension+"\x00"+text)))
}

// reuse gives a submission in mode test, which nobody ranks by, the result that the
// same text has on the same GPU type of the same board, if the board wants that and
// the task was the same when that one came, when its result came, and now. It
// returns the id of the run that stands for the one that is saved, "" for none.
func (t *tx) reuse(in *Submission, id, board, code int64, digest string) (runID string) {
	if in.Mode != schema.ModeTest || in.Fresh || in.Check {
		return ""
	}
	var from int64
	var old string
	if !t.find(dest{&from, &old}, `SELECT s.id, p.run_id FROM lb.submission s JOIN own.board b ON b.leaderboard_id = s.leaderboard_id JOIN own.accepted a ON a.submission_id = s.id
		JOIN lb.submission_job_status j ON j.submission_id = s.id JOIN own.planned_run p ON p.submission_id = s.id JOIN own.report r ON r.run_id = p.run_id
		WHERE b.reuse AND s.leaderboard_id = $1 AND s.code_id = $2 AND a.gpu = $3 AND a.mode = 'test' AND a.task = $4 AND r.task = $4 AND s.submission_time > $5
			AND s.done AND coalesce(s.status, '') <> 'hacked' AND j.status = 'succeeded' AND p.state = 'finished' AND p.outcome = '' AND p.again = '' AND NOT p.secret
		ORDER BY s.id DESC LIMIT 1`, board, code, in.GPU, digest, t.now().Add(-reuseTime)) {
		return ""
	}
	runID, now := database.NewID(), t.now()
	// Without the times at which it began and finished: nothing ran.
	t.exec(`INSERT INTO own.planned_run (run_id, submission_id, gpu, mode, secret, priority, state, build_number, build_id, result_outcome, free_at, created_at, changed_at)
		SELECT $1, $2, gpu, mode, secret, priority, state, build_number, build_id, result_outcome, $4, $4, $4 FROM own.planned_run WHERE run_id = $3`, runID, id, old, now)
	t.exec(`INSERT INTO own.report (run_id, submission_id, body, task, created_at) SELECT $1, $2, body, task, $4 FROM own.report WHERE run_id = $3`, runID, id, old, now)
	t.copyRuns(from, id, in.GPU)
	t.finish(id)
	return runID
}

// copyRuns copies the public rows that a submission has on a GPU type.
func (t *tx) copyRuns(from, target int64, gpu string) {
	for _, id := range values[int64](t, `SELECT id FROM lb.runs WHERE submission_id = $1 AND runner = $2 AND NOT secret ORDER BY id`, from, gpu) {
		made := value[int64](t, `INSERT INTO lb.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed, compilation, meta, result, system_info)
			SELECT $1, start_time, end_time, mode, secret, runner, score, passed, compilation, meta, result, system_info FROM lb.runs WHERE id = $2 RETURNING id`, target, id)
		t.exec(`INSERT INTO own.run_evidence (run_id, harness, self_checked, sandbox, ambiguous, low, high, proved)
			SELECT $1, harness, self_checked, sandbox, ambiguous, low, high, proved FROM own.run_evidence WHERE run_id = $2`, made, id)
	}
}

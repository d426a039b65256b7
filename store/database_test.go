package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// fill makes a board with some rankings, failures and a closed one beside it.
func fill(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	b := testBoard("sort")
	b.Limits, b.Policy = []Limit{{Category: schema.ModeTest, PerHour: 100}, {GPU: "H100", Category: schema.ModeTest, PerHour: 50}}, &ranking.Policy{Ties: true}
	save(t, s, b, testBoard("other"))
	for i := range 12 {
		in := submission("sort", []string{"H100", "B200"}[i%2], fmt.Sprint(i%5+1))
		in.Code = fmt.Appendf(in.Code, "'é\\ %d", i)
		if _, err := s.Accept(ctx, in); err != nil {
			t.Fatal(err)
		}
	}
	evaluate(t, s, func(p PlannedRun) *schema.Result { return result(p.Submission%4 > 0, float64(100*p.Submission)+0.1) })
	if _, err := s.NewCLIID(ctx, "3", "Ann <b>"); err != nil {
		t.Fatal(err)
	}
}

func TestConvert(t *testing.T) {
	ctx := context.Background()
	from, to := migrated(t, sqliteURL(t)), migrated(t, postgresURL(t))
	fill(t, from)
	closed := testBoard("closed")
	closed.Visibility, closed.ShowCode, closed.Reuse = Closed, CodeNever, true
	closed.Task.Harness = schema.HarnessIsolated
	save(t, from, closed)
	codes, err := from.NewInvites(ctx, []string{"closed"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.ClaimInvite(ctx, codes[0], "3"); err != nil {
		t.Fatal(err)
	}
	session, err := from.NewSession(ctx, "3", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	link, err := from.NewLink(ctx, "3", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.LogIn(ctx, "github", "77", "dan"); err != nil {
		t.Fatal(err)
	}
	if err := from.SetAccepting(ctx, false); err != nil {
		t.Fatal(err)
	}
	secret, err := from.Secret(ctx, "signing")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.db.Exec(ctx, from.db.Write, `INSERT INTO lb.draft_code (leaderboard_id, user_id, code) VALUES (1, '3', $1)`, []byte{0, 1, 0xff}); err != nil {
		t.Fatal(err)
	}
	in := submission("sort", "H100", "3")
	in.UserName, in.Mode = "", schema.ModeTest
	if _, err := from.Accept(ctx, in); err != nil {
		t.Fatal(err)
	}
	claimed, err := from.Claim(ctx, "test", 1, nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	report := []byte("{\"success\": false}")
	if err := from.Record(ctx, claimed[0], result(true, 1), report); err != nil {
		t.Fatal(err)
	}
	in.Check = true
	if _, err := from.Accept(ctx, in); err != nil {
		t.Fatal(err)
	}
	rows, err := Convert(ctx, from, to)
	if err != nil {
		t.Fatal(err)
	}
	var draft []byte
	if err := to.db.Row(ctx, to.db.Read, `SELECT code FROM lb.draft_code WHERE user_id = '3' AND type = 'general'`).Scan(&draft); err != nil || string(draft) != "\x00\x01\xff" {
		t.Errorf("a draft became %q, %v", draft, err)
	}
	if got, err := to.Board(ctx, "closed"); err != nil || got.ShowCode != CodeNever || !got.Reuse || got.Task.Harness != schema.HarnessIsolated {
		t.Errorf("a board became %+v, %v", got, err)
	}
	if ok, err := to.Allowed(ctx, "closed", "3"); err != nil || !ok {
		t.Errorf("an invite that was claimed: %t, %v", ok, err)
	}
	if u, err := to.UserBySession(ctx, session); err != nil || u.ID != "3" {
		t.Errorf("a session became %+v, %v", u, err)
	}
	if u, err := to.UserByLink(ctx, link); err != nil || u.ID != "3" {
		t.Errorf("a log-in link became %+v, %v", u, err)
	}
	_, err = to.LogIn(ctx, "discord", "77", "eve")
	refusal(t, err, OtherProvider, "77")
	if n := rows["kbserve.begun_run"]; n != 24 {
		t.Errorf("Convert copied %d runs that began, want 24", n)
	}
	if yes, err := to.Accepting(ctx); err != nil || yes {
		t.Errorf("Accepting = %t, %v; want no", yes, err)
	}
	if got, err := to.Secret(ctx, "signing"); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("a kept secret has changed, %v", err)
	}
	if got := reportOf(t, to, claimed[0].RunID); !bytes.Equal(got, report) {
		t.Errorf("a report became %q", got)
	}
	if waits, err := to.HookWaits(ctx); err != nil || len(waits) != 1 || waits[0].Submission != 14 {
		t.Errorf("a submission that waits for a decision became %+v, %v", waits, err)
	}
	if rows["leaderboard.submission"] != 14 || rows["leaderboard.user_info"] != 6 || rows["kbserve.planned_run"] != 26 {
		t.Errorf("Convert copied %v", rows)
	}
	var texts [2]bytes.Buffer
	for i, s := range []*Store{from, to} {
		if _, err := s.Export(ctx, &texts[i], "", true); err != nil {
			t.Fatal(err)
		}
	}
	// PostgreSQL puts JSON's members into an order of its own.
	plain := func(b *bytes.Buffer) string { return strings.NewReplacer(" ", "").Replace(b.String()) }
	if a, b := len(plain(&texts[0])), len(plain(&texts[1])); a != b || a < 1000 {
		t.Errorf("the export has %d bytes before and %d after", a, b)
	}
	for _, gpu := range []string{"H100", "B200"} {
		a, _, err1 := from.Page(ctx, "sort", gpu, 0, 0)
		b, _, err2 := to.Page(ctx, "sort", gpu, 0, 0)
		if diff := cmp.Diff(a, b); diff != "" || err1 != nil || err2 != nil || len(a) < 2 {
			t.Errorf("rankings on %s (-SQLite +PostgreSQL): %v %v\n%s", gpu, err1, err2, diff)
		}
	}
	a, _ := from.Installation(ctx)
	if b, err := to.Installation(ctx); err != nil || a != b || len(a) != 32 {
		t.Errorf("installation %q became %q, %v", a, b, err)
	}
	if faults, err := to.Check(ctx); err != nil || len(faults) > 0 {
		t.Errorf("Check says %q, %v", faults, err)
	}
	if out, err := to.Accept(ctx, submission("sort", "H100", "77")); err != nil || out.ID != 15 {
		t.Errorf("the next submission is %+v, %v; want id 15", out, err)
	}
	if _, err := Convert(ctx, from, to); err == nil || !strings.Contains(err.Error(), "want an empty one") {
		t.Errorf("Convert into a database in use: %v", err)
	}
}

// What leaves the database has nothing that is secret.
func TestExport(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		fill(t, s)
		var seed string
		if err := s.db.Row(ctx, s.db.Read, `SELECT CAST(secret_seed AS text) FROM lb.leaderboard WHERE name = 'sort'`).Scan(&seed); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if n, err := s.Export(ctx, &out, "sort", false); err != nil || n != 12 || strings.Count(out.String(), "\n") != 12 {
			t.Fatalf("Export = %d, %v", n, err)
		}
		for _, secret := range []string{seed, "sha256:", "custom_kernel"} {
			if strings.Contains(out.String(), secret) {
				t.Errorf("the export has %s", secret)
			}
		}
		if n := strings.Count(out.String(), `"secret":true`); n == 0 || strings.Count(out.String(), `"secret":true,"runner":"H100","passed":true,"score":null}`)+
			strings.Count(out.String(), `"secret":true,"runner":"B200","passed":true,"score":null}`)+strings.Count(out.String(), `,"passed":false,"score":null}`) != n {
			t.Errorf("a secret run of %d tells more than whether it passed:\n%s", n, out.String())
		}
		if _, err := s.Export(ctx, &out, "none", false); !errors.Is(err, ErrNotFound) {
			t.Errorf("Export of no board: %v", err)
		}
	})
}

// A database of another version is refused, and nothing makes one by mistake.
func TestOpen(t *testing.T) {
	ctx := context.Background()
	missing := filepath.Join(t.TempDir(), "no.db")
	for _, url := range []string{"sqlite:" + missing, "sqlite:", "mysql://x", "", "postgres://u:topsecret@/%zz"} {
		s, err := Open(ctx, url)
		if err == nil {
			s.Close()
			t.Errorf("Open(%q) works", url)
		} else if strings.Contains(err.Error(), "topsecret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("Open(%q): %v", url, err)
		}
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("Open made a file")
	}
	private := sqliteURL(t)
	migrated(t, private)
	for _, file := range []string{"", "-wal"} {
		if info, err := os.Stat(strings.TrimPrefix(private, "sqlite:") + file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file%s: %v, %v; want it for its owner alone", file, info, err)
		}
	}
	for _, url := range []func(testing.TB) string{sqliteURL, postgresURL} {
		t.Run("", func(t *testing.T) {
			url := url(t)
			var wait sync.WaitGroup
			for range 3 {
				wait.Go(func() {
					if _, _, err := database.Migrate(ctx, url); err != nil {
						t.Errorf("Migrate, three at once: %v", err)
					}
				})
			}
			wait.Wait()
			s, err := Open(ctx, url)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if n := count(t, s, "own.installation"); n != 1 {
				t.Errorf("%d installations", n)
			}
			if _, err := s.db.Exec(ctx, s.db.Write, `INSERT INTO own.goose_version (version_id, is_applied) VALUES (99, true)`); err != nil {
				t.Fatal(err)
			}
			var version *database.VersionError
			if _, err := Open(ctx, url); !errors.As(err, &version) || version.Got != 99 {
				t.Errorf("Open of version 99: %v", err)
			}
			if _, _, err := database.Migrate(ctx, url); !errors.As(err, &version) {
				t.Errorf("Migrate of version 99: %v", err)
			}
		})
	}
}

// A database that Kernelbot's migrations made keeps its rows and columns, under
// its own names of indexes; what lacks a column is named.
func TestMigrateOnKernelbotsDatabase(t *testing.T) {
	ctx := context.Background()
	url := postgresURL(t)
	made, err := os.ReadFile("database/migrations/postgres/00001_leaderboard.sql")
	if err != nil {
		t.Fatal(err)
	}
	tables, _, _ := strings.Cut(string(made), "-- +goose StatementBegin")
	pg := &server
	run := func(statements string) {
		t.Helper()
		if err := pg.Exec(url, statements); err != nil {
			t.Fatal(err)
		}
	}
	run(tables + `CREATE INDEX runs_runner_score_idx ON leaderboard.runs (runner, score);
		INSERT INTO leaderboard.leaderboard (name, deadline, task, forum_id, description) VALUES ('old', now() + interval '1 day', '{"ranking_by": "last"}', 1, 'x');
		INSERT INTO leaderboard.gpu_type VALUES (1, 'H100');
		INSERT INTO leaderboard.user_info (id, user_name, cli_id, cli_valid) VALUES ('1', 'user 1', 'clear-id', true);
		INSERT INTO leaderboard.code_files (code) VALUES ('x');
		INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done, mode_category) VALUES (1, 'submission.py', '1', 1, now(), true, 'leaderboard');
		INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed, system_info)
			VALUES (1, now(), now(), 'leaderboard', false, 'H100', 0.5, true, '{}'), (1, now(), now(), 'leaderboard', true, 'H100', 0.6, true, '{}');`)
	s := migrated(t, url)
	if faults, err := s.Check(ctx); err != nil || len(faults) != 1 {
		t.Errorf("Check before the first rebuild: %q, %v; want a verdict missing", faults, err)
	}
	if n, err := s.Rebuild(ctx); err != nil || n != 1 {
		t.Errorf("Rebuild = %d, %v", n, err)
	}
	if got := ours(t, s, "old", "H100"); len(got) != 1 || got[0] != (ranked{1, "1", 0.5}) {
		t.Errorf("the ranking is %v", got)
	}
	if u, err := s.UserByCLIID(ctx, "clear-id"); err != nil || u.ID != "1" {
		t.Errorf("UserByCLIID = %+v, %v", u, err)
	}
	id, err := s.NewCLIID(ctx, "1", "")
	if err != nil {
		t.Fatal(err)
	}
	var kept string
	if err := s.db.Row(ctx, s.db.Read, `SELECT cli_id FROM lb.user_info WHERE id = '1'`).Scan(&kept); err != nil || strings.Contains(kept, id) {
		t.Errorf("the database keeps %q of the CLI id, %v", kept, err)
	}
	for _, tried := range []string{"clear-id", kept, ""} {
		if _, err := s.UserByCLIID(ctx, tried); !errors.Is(err, ErrNotFound) {
			t.Errorf("UserByCLIID(%q): %v", tried, err)
		}
	}
	if u, err := s.UserByCLIID(ctx, id); err != nil || u.ID != "1" || u.Name != "user 1" {
		t.Errorf("UserByCLIID = %+v, %v", u, err)
	}
	run(`ALTER TABLE leaderboard.runs DROP COLUMN meta`)
	if _, err := Open(ctx, url); err == nil || !strings.Contains(err.Error(), "leaderboard.runs: got no column meta") {
		t.Errorf("Open without a column: %v", err)
	}
}

// A PostgreSQL that was restarted costs signals that were under way, and nothing else:
// whoever listens is told again.
func TestEverybodyConnectsAgain(t *testing.T) {
	s := migrated(t, postgresURL(t))
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	signals := s.Signals(ctx)
	take := func() {
		t.Helper()
		again := time.NewTicker(50 * time.Millisecond)
		defer again.Stop()
		for {
			select {
			case _, open := <-signals:
				if !open {
					t.Fatal("nobody listens any more")
				}
				return
			case <-again.C:
				if err := s.Signal(ctx, Signal{Kind: SignalPlanned}); err != nil {
					t.Fatalf("a signal after the connections ended: %v", err)
				}
			}
		}
	}
	take()
	for range 3 {
		if _, err := s.db.Exec(ctx, s.db.Write, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
			t.Fatal(err)
		}
		for len(signals) > 0 {
			<-signals
		}
		take()
		if _, err := s.Claim(ctx, "a", 1, nil, time.Minute); err != nil {
			t.Errorf("the first claim after the connections ended: %v", err)
		}
	}
}

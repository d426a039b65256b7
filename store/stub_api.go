package store

import (
	"context"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

const (
	HasCLIID Why = iota + 50
	UnknownInvite
	InviteTaken
	Finished
)

type Query struct {
	UserID, Board, GPU, Status string
	Before                     int64
	Offset, Limit              int
}

type ListedRun struct {
	GPU   string
	Score *float64
	Ranks bool
}

type Listed struct {
	ID        int64
	Board     string
	FileName  string
	GPU, Mode string
	UserID    string
	User      string
	Time      time.Time
	Done      bool
	Hacked    bool
	Job       Job
	Runs      []ListedRun
	Verdicts  []Verdict
}

type Step struct {
	Time         time.Time
	Score        float64
	UserID, User string
	SubmissionID int64
}

type Report struct {
	RunID, GPU string
	Raw        []byte
	Result     *schema.Result
}
type Invite struct {
	Code   string
	UserID string
	Boards []string
}
type Stats struct{ Submissions int }

func (s *Store) Board(ctx context.Context, name string) (*Board, error)          { return nil, nil }
func (s *Store) Allowed(ctx context.Context, board, userID string) (bool, error) { return true, nil }
func (s *Store) User(ctx context.Context, id string) (User, error)               { return User{}, nil }
func (s *Store) NewSession(ctx context.Context, userID string, until time.Time) (string, error) {
	return "", nil
}
func (s *Store) UserBySession(ctx context.Context, token string) (User, error) { return User{}, nil }
func (s *Store) EndSession(ctx context.Context, token string) error            { return nil }
func (s *Store) EndSessions(ctx context.Context, userID string) error          { return nil }
func (s *Store) BeginLogin(ctx context.Context, provider string) (string, error) {
	return "", nil
}
func (s *Store) FinishLogin(ctx context.Context, cliID, provider, userID, name string, reset bool) error {
	return nil
}
func (s *Store) LogIn(ctx context.Context, provider, userID, name string) (User, error) {
	return User{}, nil
}
func (s *Store) NewInvites(ctx context.Context, boards []string, n int) ([]string, error) {
	return nil, nil
}
func (s *Store) ClaimInvite(ctx context.Context, code, userID string) ([]string, error) {
	return nil, nil
}
func (s *Store) Invites(ctx context.Context, board string) ([]Invite, error)       { return nil, nil }
func (s *Store) RevokeInvite(ctx context.Context, code string) error               { return nil }
func (s *Store) SetLimits(ctx context.Context, board string, limits []Limit) error { return nil }
func (s *Store) Limits(ctx context.Context, board string) ([]Limit, error)         { return nil, nil }
func (s *Store) Submissions(ctx context.Context, q Query) ([]Listed, error)        { return nil, nil }
func (s *Store) Count(ctx context.Context, board, gpu string) (int, error)         { return 0, nil }
func (s *Store) History(ctx context.Context, board, gpu string) ([]Step, error)    { return nil, nil }
func (s *Store) UserHistory(ctx context.Context, board, gpu, u string) ([]Step, error) {
	return nil, nil
}
func (s *Store) Reports(ctx context.Context, submission int64) ([]Report, error) { return nil, nil }
func (s *Store) Accepting(ctx context.Context) (bool, error)                     { return true, nil }
func (s *Store) SetAccepting(ctx context.Context, on bool) error                 { return nil }
func (s *Store) Secret(ctx context.Context, name string) ([]byte, error)         { return nil, nil }
func (s *Store) Stats(ctx context.Context) (Stats, error)                        { return Stats{}, nil }
func (s *Store) CancelSubmission(ctx context.Context, id int64, why string) ([]PlannedRun, error) {
	return nil, nil
}

const ShowAfter = "after"

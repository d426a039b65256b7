package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// announcedTop is how many entries of a ranking an announcement is about.
const announcedTop = 3

// An Announcement is a change among the first three of a public board on a GPU
// type.
type Announcement struct {
	Board, GPU  string
	Before, Now []Leader // at most three each, the first one first
}

// A Leader is one of the first of a ranking, as it was announced or is to be.
type Leader struct {
	UserID     string  `json:"user"`
	User       string  `json:"name"`
	Score      float64 `json:"score"` // seconds
	Submission int64   `json:"submission"`
	Rank       int     `json:"rank"`
	Tied       bool    `json:"tied,omitempty"`
	Gone       bool    `json:"-"` // of Before: it does not rank any more, and is not to be named
}

// is reports whether two leaders are the same with the same result.
func (l Leader) is(o Leader) bool {
	return l.UserID == o.UserID && l.Score == o.Score && l.Submission == o.Submission
}

// Announce returns how the first three of a board have changed since it was called
// last, by any instance: of several that call it at once, one gets each change. Of
// a GPU type that is asked about for the first time there is nothing to say, nor of
// a closed board.
//
// Errors: [ErrNotFound].
func (s *Store) Announce(ctx context.Context, board string) (changes []Announcement, err error) {
	err = s.change(ctx, "looking for what to announce of board "+text.Quote(board), func(t *tx) {
		changes = nil
		var id int64
		var visibility string
		t.get(dest{&id, &visibility}, `SELECT id, visibility FROM lb.leaderboard WHERE name = $1`, board)
		if visibility != Public { // when it is made public, nobody is told of its ranking
			t.exec(`DELETE FROM own.announced WHERE leaderboard_id = $1`, id)
			return
		}
		for _, gpu := range t.gpus(id) {
			if c := t.claimAnnouncement(board, boardGPU{id, gpu}); c != nil {
				changes = append(changes, *c)
			}
		}
	})
	return changes, err
}

// claimAnnouncement makes what is announced of a ranking what it is now. It reads
// the ranking after it has locked the row, so that of two, the later one sees the
// later ranking.
func (t *tx) claimAnnouncement(board string, target boardGPU) *Announcement {
	first := t.exec(`INSERT INTO own.announced (leaderboard_id, gpu, top) VALUES ($1, $2, '[]') ON CONFLICT (leaderboard_id, gpu) DO NOTHING`, target.board, target.gpu)
	cached := value[string](t, `SELECT top FROM own.announced WHERE leaderboard_id = $1 AND gpu = $2 {lock}`, target.board, target.gpu)
	c := &Announcement{Board: board, GPU: target.gpu, Now: t.leaders(board, target)}
	if t.err != nil {
		return nil
	}
	if err := json.Unmarshal([]byte(cached), &c.Before); err != nil {
		t.fail(fmt.Errorf("what was announced on %s: %w", target.gpu, err))
		return nil
	}
	if slices.EqualFunc(c.Before, c.Now, Leader.is) {
		return nil
	}
	for i := range c.Before {
		c.Before[i].Gone = !t.ranks(target.gpu, c.Before[i].Submission)
	}
	top, err := json.Marshal(c.Now)
	if err != nil {
		t.fail(err)
	}
	t.exec(`UPDATE own.announced SET top = $3 WHERE leaderboard_id = $1 AND gpu = $2`, target.board, target.gpu, string(top))
	if first > 0 {
		return nil
	}
	return c
}

// leaders are the first three of a ranking.
func (t *tx) leaders(board string, target boardGPU) []Leader {
	_, version := t.version(board)
	entries, err := t.rankings.get(target, version, func() ([]ranking.Entry, int64, error) {
		list := t.ranking(target)
		return list, version, t.err
	})
	if err != nil {
		t.fail(err)
	}
	top := []Leader{}
	for _, e := range entries[:min(announcedTop, len(entries))] {
		top = append(top, Leader{UserID: e.UserID, User: e.User, Score: e.Score, Submission: e.SubmissionID, Rank: e.Rank, Tied: e.Tied})
	}
	return top
}

// RanksPublicly reports whether a submission ranks on a GPU type of a public board.
func (s *Store) RanksPublicly(ctx context.Context, gpu string, submission int64) (ranks bool, err error) {
	err = s.read(ctx, "looking whether a submission ranks", func(t *tx) { ranks = t.ranks(gpu, submission) })
	return ranks, err
}

func (t *tx) ranks(gpu string, submission int64) bool {
	return value[bool](t, `SELECT EXISTS (SELECT 1 FROM own.verdict v JOIN lb.leaderboard l ON l.id = v.leaderboard_id WHERE v.submission_id = $1 AND v.gpu = $2 AND v.ranks AND l.visibility = $3)`,
		submission, gpu, Public)
}

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
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
	err = s.change(ctx, "looking for what to announce of board "+text.Quote(board), func(tx *sql.Tx) error {
		changes = nil
		var id int64
		var visibility string
		if err := s.db.Row(ctx, tx, `SELECT id, visibility FROM lb.leaderboard WHERE name = $1`, board).Scan(&id, &visibility); err != nil {
			return err
		}
		if visibility != Public { // when it is made public, nobody is told of its ranking
			_, err := s.db.Exec(ctx, tx, `DELETE FROM own.announced WHERE leaderboard_id = $1`, id)
			return err
		}
		gpus, err := s.gpus(ctx, tx, id)
		if err != nil {
			return err
		}
		for _, gpu := range gpus {
			c, err := s.claimAnnouncement(ctx, tx, board, boardGPU{id, gpu})
			if err != nil {
				return err
			}
			if c != nil {
				changes = append(changes, *c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return changes, nil
}

// claimAnnouncement makes what is announced of a ranking what it is now. It reads
// the ranking after it has locked the row, so that of two, the later one sees the
// later ranking.
func (s *Store) claimAnnouncement(ctx context.Context, tx *sql.Tx, board string, target boardGPU) (*Announcement, error) {
	first, err := s.db.Exec(ctx, tx, `INSERT INTO own.announced (leaderboard_id, gpu, top) VALUES ($1, $2, '[]') ON CONFLICT (leaderboard_id, gpu) DO NOTHING`, target.board, target.gpu)
	if err != nil {
		return nil, err
	}
	var cached string
	if err := s.db.Row(ctx, tx, `SELECT top FROM own.announced WHERE leaderboard_id = $1 AND gpu = $2 {lock}`, target.board, target.gpu).Scan(&cached); err != nil {
		return nil, err
	}
	c := &Announcement{Board: board, GPU: target.gpu}
	if err := json.Unmarshal([]byte(cached), &c.Before); err != nil {
		return nil, fmt.Errorf("what was announced on %s: %w", target.gpu, err)
	}
	if c.Now, err = s.leaders(ctx, tx, board, target); err != nil {
		return nil, err
	}
	same := len(c.Before) == len(c.Now)
	for i := 0; same && i < len(c.Now); i++ {
		same = c.Before[i].is(c.Now[i])
	}
	if same {
		return nil, nil
	}
	for i := range c.Before {
		ranks, err := s.ranks(ctx, tx, target.gpu, c.Before[i].Submission)
		if err != nil {
			return nil, err
		}
		c.Before[i].Gone = !ranks
	}
	top, err := json.Marshal(c.Now)
	if err == nil {
		_, err = s.db.Exec(ctx, tx, `UPDATE own.announced SET top = $3 WHERE leaderboard_id = $1 AND gpu = $2`, target.board, target.gpu, string(top))
	}
	if err != nil || first > 0 {
		return nil, err
	}
	return c, nil
}

// leaders are the first three of a ranking.
func (s *Store) leaders(ctx context.Context, on database.Querier, board string, target boardGPU) ([]Leader, error) {
	_, version, err := s.version(ctx, on, board)
	if err != nil {
		return nil, err
	}
	entries, err := s.rankings.get(target, version, func() ([]ranking.Entry, int64, error) {
		list, err := s.ranking(ctx, on, target)
		return list, version, err
	})
	top := []Leader{}
	for _, e := range entries[:min(announcedTop, len(entries))] {
		top = append(top, Leader{UserID: e.UserID, User: e.User, Score: e.Score, Submission: e.SubmissionID, Rank: e.Rank, Tied: e.Tied})
	}
	return top, err
}

// RanksPublicly reports whether a submission ranks on a GPU type of a public board.
func (s *Store) RanksPublicly(ctx context.Context, gpu string, submission int64) (bool, error) {
	ranks, err := s.ranks(ctx, s.db.Read, gpu, submission)
	return ranks, wrap("looking whether a submission ranks", err)
}

func (s *Store) ranks(ctx context.Context, on database.Querier, gpu string, submission int64) (ranks bool, err error) {
	err = s.db.Row(ctx, on, `SELECT EXISTS (SELECT 1 FROM own.verdict v JOIN lb.leaderboard l ON l.id = v.leaderboard_id WHERE v.submission_id = $1 AND v.gpu = $2 AND v.ranks AND l.visibility = $3)`,
		submission, gpu, Public).Scan(&ranks)
	return ranks, err
}

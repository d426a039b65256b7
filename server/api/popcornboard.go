package api

import (
	"net/http"
	"strconv"

	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// A Leaderboard is a board without what is secret in it. Kernelbot's task holds all
// files; here it has the description, which clients look for.
type leaderboardJSON struct {
	ID          int64               `json:"id"`
	Name        string              `json:"name"`
	Deadline    string              `json:"deadline"`
	Task        leaderboardTaskJSON `json:"task"`
	GPUTypes    []string            `json:"gpu_types"`
	CreatorID   int64               `json:"creator_id"`
	ForumID     int64               `json:"forum_id"`
	Description string              `json:"description"`
	Visibility  string              `json:"visibility"`
}

type leaderboardTaskJSON struct {
	Description string `json:"description"`
}

func leaderboards(c *call) (any, error) {
	boards, err := c.back().Boards(c.ctx(), c.viewer())
	return mapped(boards, func(b store.Board) leaderboardJSON {
		return leaderboardJSON{ID: b.ID, Name: b.Name, Deadline: stamp(b.Deadline), Task: leaderboardTaskJSON{b.Description}, GPUTypes: list(b.GPUs), CreatorID: -1, ForumID: -1, Description: b.Description, Visibility: b.Visibility}
	}), err
}

// list is a slice that JSON writes as a list, empty or not.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func gpus(c *call) (any, error) {
	b, err := c.back().Board(c.ctx(), c.viewer(), c.board())
	if err != nil {
		return nil, err
	}
	return list(b.GPUs), nil
}

// A RankedSubmission is one line of a ranking.
type RankedSubmission struct {
	SubmissionID    int64   `json:"submission_id"`
	Rank            int     `json:"rank"`
	SubmissionName  string  `json:"submission_name"`
	SubmissionTime  string  `json:"submission_time"`
	SubmissionScore float64 `json:"submission_score"` // seconds
	LeaderboardName string  `json:"leaderboard_name"`
	UserID          any     `json:"user_id"` // a number, as in Kernelbot, where it is one
	UserName        string  `json:"user_name"`
	GPUType         string  `json:"gpu_type"`
}

func popcornRanking(c *call) (any, error) {
	limit, err := c.number("limit", 0, 0, 1<<31-1)
	if err != nil {
		return nil, err
	}
	offset, err := c.number("offset", 0, 0, 1<<31-1)
	if err != nil {
		return nil, err
	}
	entries, _, err := c.back().Ranking(c.ctx(), c.viewer(), c.board(), c.PathValue("gpu"), limit, offset)
	return mapped(entries, func(e ranking.Entry) RankedSubmission {
		return RankedSubmission{e.SubmissionID, e.Rank, e.FileName, stamp(e.Time), e.Score, c.board(), numberOr(e.UserID), e.User, c.PathValue("gpu")}
	}), err
}

func numberOr(s string) any {
	if n, err := strconv.ParseUint(s, 10, 64); err == nil && strconv.FormatUint(n, 10) == s {
		return n
	}
	return s
}

type countedJSON struct {
	Count int `json:"count"`
}

func count(c *call) (any, error) {
	if id := c.word("user_id"); id != "" {
		steps, err := c.back().UserHistory(c.ctx(), c.viewer(), c.board(), c.PathValue("gpu"), id)
		return countedJSON{min(1, len(steps))}, err
	}
	n, err := c.back().Count(c.ctx(), c.viewer(), c.board(), c.PathValue("gpu"))
	return countedJSON{n}, err
}

func runnerQueue(c *call) (any, error) {
	line, err := c.back().Line(c.ctx(), c.viewer())
	if err != nil {
		return nil, err
	}
	for _, g := range line {
		if g.GPU != c.PathValue("gpu") {
			continue
		}
		q := runnerQueueJSON{Runner: runner, GPU: g.GPU, QueuedJobs: &g.Waiting, RunningJobs: &g.Running, Status: "available", Error: stringOrNil(g.Off)}
		if g.Off != "" {
			q.Status = "unavailable"
		}
		if g.Known {
			free := max(0, g.Agents-g.Busy)
			q.AvailableRunners = &free
		}
		return q, nil
	}
	return nil, &refusal{http.StatusNotFound, "no board has this GPU type"}
}

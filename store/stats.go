package store

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// Stats are the numbers of all boards.
type Stats struct {
	Users       int          `json:"users"` // who have submitted
	Submissions int          `json:"submissions"`
	Hour        int          `json:"submissions_last_hour"`
	Day         int          `json:"submissions_last_day"` // of the last 24 hours
	Runs        int          `json:"open_runs"`            // planned runs that have not finished
	Boards      []BoardStats `json:"boards"`
}

// BoardStats are the numbers of one board.
type BoardStats struct {
	Board       string         `json:"board"`
	Users       int            `json:"users"`
	Submissions int            `json:"submissions"`
	Statuses    map[string]int `json:"by_status"` // submissions by their job's status; "" for none
	Modes       map[string]int `json:"by_mode"`   // by mode; of those that Kernelbot accepted, by its category
	Hour        int            `json:"submissions_last_hour"`
	Day         int            `json:"submissions_last_day"`
	Open        int            `json:"open_runs"` // planned runs that have not finished
}

// Stats counts, on one state of the database. It reads every submission's row.
func (s *Store) Stats(ctx context.Context) (all Stats, err error) {
	err = s.snapshot(ctx, "counting", func(t *tx) {
		all = Stats{Boards: []BoardStats{}}
		places := map[int64]int{}
		var id int64
		var board BoardStats
		t.each(dest{&id, &board.Board, &board.Users}, func() {
			board.Statuses, board.Modes = map[string]int{}, map[string]int{}
			places[id] = len(all.Boards)
			all.Boards = append(all.Boards, board)
		}, `SELECT l.id, l.name, (SELECT count(DISTINCT s.user_id) FROM lb.submission s WHERE s.leaderboard_id = l.id) FROM lb.leaderboard l ORDER BY l.name`)
		t.get(dest{&all.Users}, `SELECT count(DISTINCT user_id) FROM lb.submission`)
		now := s.now()
		var status, mode string
		var n, hour, day int
		t.each(dest{&id, &status, &mode, &n, &hour, &day}, func() {
			b := &all.Boards[places[id]]
			b.Submissions += n
			b.Statuses[status] += n
			b.Modes[mode] += n
			b.Hour += hour
			b.Day += day
		}, `SELECT s.leaderboard_id, CASE WHEN s.status = 'hacked' THEN 'hacked' ELSE coalesce(j.status, '') END, coalesce(a.mode, s.mode_category, ''),
				count(*), count(CASE WHEN s.submission_time > $1 THEN 1 END), count(CASE WHEN s.submission_time > $2 THEN 1 END)
			FROM lb.submission s LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id LEFT JOIN own.accepted a ON a.submission_id = s.id GROUP BY 1, 2, 3`,
			now.Add(-time.Hour), now.Add(-24*time.Hour))
		var open int
		t.each(dest{&id, &open}, func() { all.Boards[places[id]].Open = open }, `SELECT s.leaderboard_id, count(*) FROM own.planned_run p JOIN lb.submission s ON s.id = p.submission_id WHERE p.state <> 'finished' GROUP BY 1`)
		for _, b := range all.Boards {
			all.Submissions += b.Submissions
			all.Runs += b.Open
			all.Hour += b.Hour
			all.Day += b.Day
		}
	})
	return all, err
}

// counts are how many submissions and standings each board has. At a million runs
// counting them takes longer than a start page may, so that only what is new is
// counted each time, and the rest by one who asks when it is older than countAge.
type counts struct {
	mu       sync.Mutex
	at       time.Time
	upTo     int64         // the submissions that are counted have ids up to it
	old      map[int64]int // of those, by board; not changed once it is here
	counting bool          // somebody makes a new one of old
	ranks    map[int64]boardCount
}

type boardCount struct {
	version int64
	ranked  int
}

const (
	countAge = time.Minute

	// countMargin is how many of the newest submissions are counted each time: of
	// two that come together, the one with the smaller id may be there later.
	countMargin = 1000
)

// forget makes the next reading count everything: submissions were deleted. What
// another instance deletes is noticed within countAge.
func (c *counts) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.old = nil
}

// submissions returns how many each board has.
func (t *tx) submissions() map[int64]int {
	old, upTo := t.counted()
	all := maps.Clone(old)
	// The plus keeps SQLite from reading all of another index to group by it.
	for board, n := range t.countBoards(`SELECT +leaderboard_id, count(*) FROM lb.submission WHERE id > $1 GROUP BY 1`, upTo) {
		all[board] += n
	}
	return all
}

// counted returns the submissions up to an id, by board. While one makes that anew,
// the others take what is there; where nothing is, they wait.
func (t *tx) counted() (old map[int64]int, upTo int64) {
	c := &t.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := t.now(); c.old != nil && !c.counting && (now.Sub(c.at) > countAge || now.Before(c.at)) {
		c.counting = true
		c.mu.Unlock()
		old, upTo = t.count()
		c.mu.Lock()
		c.counting = false
		if t.err == nil && c.old != nil { // nothing was deleted meanwhile
			c.at, c.old, c.upTo = now, old, upTo
		}
	}
	if c.old == nil {
		now := t.now()
		if old, upTo = t.count(); t.err != nil {
			return old, upTo
		}
		c.at, c.old, c.upTo = now, old, upTo
	}
	return c.old, c.upTo
}

func (t *tx) count() (old map[int64]int, upTo int64) {
	t.get(dest{&upTo}, `SELECT coalesce(max(id), 0) FROM lb.submission`)
	upTo -= countMargin
	return t.countBoards(`SELECT leaderboard_id, count(*) FROM lb.submission WHERE id <= $1 GROUP BY leaderboard_id`, upTo), upTo
}

// ranked returns how many standings a board has at this version.
func (t *tx) ranked(board, version int64) int {
	c := &t.counts
	c.mu.Lock()
	cached, ok := c.ranks[board]
	c.mu.Unlock()
	if ok && cached.version == version {
		return cached.ranked
	}
	cached.version = version
	t.get(dest{&cached.ranked}, `SELECT count(*) FROM own.standing WHERE leaderboard_id = $1`, board)
	if t.err != nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ranks == nil {
		c.ranks = map[int64]boardCount{}
	}
	c.ranks[board] = cached
	return cached.ranked
}

// countBoards reads numbers by board.
func (t *tx) countBoards(statement string, upTo int64) map[int64]int {
	counts := map[int64]int{}
	var board int64
	var n int
	t.each(dest{&board, &n}, func() { counts[board] = n }, statement, upTo)
	return counts
}

// A Day is what became of the runs of one GPU type in the last 24 hours.
type Day struct {
	Runs         int            // that began, further evaluations left out
	Wait, Wait95 time.Duration  // from their plan to their build: median and 95th percentile
	Hours        []HourWait     // hours in which runs began, the oldest first
	Faults       map[string]int // number of runs that ended without a verdict on the submission, by party at fault
}

// An HourWait is the median wait of the runs that began in one hour.
type HourWait struct {
	Hour time.Time
	Wait time.Duration
}

// LastDay sums up the last 24 hours by GPU type.
func (s *Store) LastDay(ctx context.Context) (days map[string]*Day, err error) {
	type gpuHour struct {
		gpu  string
		hour time.Time
	}
	waits, hours := map[string][]time.Duration{}, map[gpuHour][]time.Duration{}
	err = s.read(ctx, "summing up the last day", func(t *tx) {
		days = map[string]*Day{}
		var gpu, outcome string
		var planned, started time.Time
		t.each(dest{&gpu, &planned, &started, &outcome}, func() {
			if days[gpu] == nil {
				days[gpu] = &Day{Faults: map[string]int{}}
			}
			wait, at := max(started.Sub(planned), 0), gpuHour{gpu, started.Truncate(time.Hour)}
			waits[gpu], hours[at] = append(waits[gpu], wait), append(hours[at], wait)
			if o, known := schema.FindOutcome(outcome); known && o.Fault != schema.FaultNone && o.Fault != schema.FaultSubmission {
				days[gpu].Faults[o.Fault]++
			}
		}, `SELECT gpu, created_at, started_at, result_outcome FROM own.planned_run WHERE started_at > $1 AND again = ''`, s.now().Add(-24*time.Hour))
	})
	for gpu, day := range days {
		day.Runs, day.Wait, day.Wait95 = len(waits[gpu]), share(waits[gpu], 0.5), share(waits[gpu], 0.95)
	}
	for at, all := range hours {
		days[at.gpu].Hours = append(days[at.gpu].Hours, HourWait{at.hour, share(all, 0.5)})
	}
	for _, day := range days {
		slices.SortFunc(day.Hours, func(a, b HourWait) int { return a.Hour.Compare(b.Hour) })
	}
	return days, err
}

// share is the value below which a share of the list lies; it sorts the list.
func share(list []time.Duration, part float64) time.Duration {
	slices.Sort(list)
	return list[min(int(part*float64(len(list))), len(list)-1)]
}

package queue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func itself(r Run) Run { return r }

// simulate runs machines that each take the next run in turn, beside a user who
// always has runs of the most urgent class waiting if flood is set. It returns how
// long the others' runs waited.
func simulate(machines int, job time.Duration, arrivals []Run, flood bool) (waits []time.Duration) {
	begin := arrivals[0].Created
	free := make([]time.Time, machines)
	type began struct {
		Share
		at time.Time
	}
	var history []began
	var waiting []Run
	for total := len(arrivals); len(waits) < total; {
		slices.SortFunc(free, time.Time.Compare)
		now := free[0]
		if now.Before(begin) {
			now = begin
		}
		if len(waiting) == 0 && !flood && arrivals[0].Created.After(now) {
			now = arrivals[0].Created
		}
		for len(arrivals) > 0 && !arrivals[0].Created.After(now) {
			waiting, arrivals = append(waiting, arrivals[0]), arrivals[1:]
		}
		counts := map[Share]int{}
		for _, b := range history {
			if b.at.After(now.Add(-ShareWindow)) {
				counts[b.Share]++
			}
		}
		if flood { // one is enough to see which goes first
			waiting = append(waiting, Run{Share: Share{"heavy", "H100"}, ID: "h", Created: begin})
		}
		order := Order(waiting, itself, counts)
		next := order[0]
		waiting = slices.DeleteFunc(order[1:], func(p Run) bool { return p.User == "heavy" })
		history = append(history, began{next.Share, now})
		free[0] = now.Add(job)
		if next.User != "heavy" {
			waits = append(waits, now.Sub(next.Created))
		}
	}
	slices.Sort(waits)
	return waits
}

// A flood of more urgent work delays its own user: the light users' 95th percentile
// moves by one job at most. They are of one class here: among themselves, what is
// more urgent overtakes.
func TestAFloodMovesOthersByOneJob(t *testing.T) {
	const job = time.Minute
	for _, machines := range []int{1, 3} {
		for seed := range uint64(5) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
			var light []Run
			for i := range 300 {
				at = at.Add(time.Duration(rnd.ExpFloat64() * float64(job) * 2.2 / float64(machines)))
				light = append(light, Run{Share: Share{fmt.Sprint(rnd.IntN(25)), "H100"}, ID: fmt.Sprintf("l%03d", i), Priority: 1, Created: at})
			}
			quiet, flooded := simulate(machines, job, light, false), simulate(machines, job, light, true)
			p := func(w []time.Duration) time.Duration { return w[len(w)*95/100] }
			t.Logf("%d machines, seed %d: 95th percentile %s alone, %s beside the flood", machines, seed, p(quiet), p(flooded))
			if moved := p(flooded) - p(quiet); moved > job {
				t.Errorf("%d machines, seed %d: the 95th percentile moved by %s, want at most one job of %s", machines, seed, moved, job)
			}
		}
	}
}

// Urgent work first and bulk last, whoever it belongs to; a class before another
// only among users with equal shares.
func TestTurns(t *testing.T) {
	at := time.Now()
	run := func(id, user string, priority, second int) Run {
		return Run{Share: Share{user, "H100"}, ID: id, Priority: priority, Created: at.Add(time.Duration(second) * time.Second)}
	}
	waiting := []Run{
		run("bulk", "a", PriorityBulk, 0), run("a-ranked", "a", 2, 1), run("a-test", "a", 0, 2), run("b-ranked", "b", 2, 3),
		run("c-test", "c", 0, 4), run("urgent", "a", -1, 5), run("a-more", "a", 0, 6),
	}
	var got []string
	for _, p := range Order(waiting, itself, map[Share]int{{"c", "H100"}: 5, {"a", "B200"}: 9}) {
		got = append(got, p.ID)
	}
	want := []string{"urgent", "a-test", "a-more", "a-ranked", "b-ranked", "c-test", "bulk"}
	if !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}

// Take passes over runs whose GPU type has no free place, and stops after n.
func TestTakeFillsThePlaces(t *testing.T) {
	at := time.Now()
	var waiting []Run
	for i := range 6 {
		waiting = append(waiting, Run{Share: Share{fmt.Sprint(i), []string{"H100", "B200"}[i%2]}, ID: fmt.Sprint(i), Created: at.Add(time.Duration(i))})
	}
	for _, c := range []struct {
		n      int
		places map[string]int
		want   []string
	}{
		{4, map[string]int{"H100": 1, "B200": 2}, []string{"0", "1", "3"}},
		{2, map[string]int{"H100": 9, "B200": 9}, []string{"0", "1"}},
		{4, map[string]int{"B200": 9}, []string{"1", "3", "5"}},
		{5, nil, []string{"0", "1", "2", "3", "4"}},
		{0, nil, nil},
	} {
		var got []string
		for _, r := range Take(waiting, c.n, maps.Clone(c.places), itself, map[Share]int{}) {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("Take(%d, %v) = %v, want %v", c.n, c.places, got, c.want)
		}
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/fault"
	"github.com/gpu-mode/kbgen/local/notice"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store"
)

// The crash campaign: submissions through real agents while kbserve is killed at
// random moments and started again. What was accepted is evaluated once, and ranks
// as it should. Nothing may be lost, doubled, wrong or left over.

// A crashPlan is one campaign.
type crashPlan struct {
	database    string
	instances   int
	submissions int
	kills       int
	trouble     bool // events lost, doubled and late, creates cut, listings late, 502s
}

func TestServeCampaign(t *testing.T) {
	t.Parallel()
	crashCampaign(t, crashPlan{database: "SQLite", instances: 1, submissions: 24, kills: 2, trouble: true})
}

func TestSlowServeCampaign(t *testing.T) {
	testenv.NeedSlow(t)
	submissions := number(t, campaignRuns, 300)
	for _, p := range []crashPlan{
		{"SQLite", 1, submissions, 15, true},
		{"PostgreSQL", 2, submissions, 15, true},
	} {
		t.Run(fmt.Sprintf("%s, %d instances, trouble %v", p.database, p.instances, p.trouble), func(t *testing.T) { crashCampaign(t, p) })
	}
}

// A handedIn is one submission and what is to become of it.
type handedIn struct {
	user, mode     string
	public, secret string // outcomes
	ns             int    // of its benchmark
	code           string
	id             int64 // of the answer that said it was accepted
	uncertain      int   // answers that did not come
}

// A crasher is a campaign under way.
type crasher struct {
	crashPlan
	*backendRig
	random    *rand.Rand
	running   []*instance
	submitted []*handedIn
	found     trouble
}

func crashCampaign(t *testing.T, p crashPlan) {
	seed := uint64(number(t, campaignSeed, 1))
	dir := t.TempDir()
	c := &crasher{crashPlan: p, random: rand.New(rand.NewPCG(seed, 9))}
	var addresses []string
	for range p.instances {
		addresses = append(addresses, freeAddress(t))
	}
	s := c.start(t, dir, "http://"+addresses[0]+"/webhooks/buildkite", seed)
	c.backendRig = newBackendRig(t, s, p.database)
	for i := range c.userCount() {
		c.user(fmt.Sprint(11 + i))
	}
	c.do("board", "create", "sort", filepath.Join(root, "examples", "sort_py"), "--deadline", "2100-01-01", "--gpu", "CPU_BK")
	for _, address := range addresses {
		c.running = append(c.running, c.serve(address, "--lease", "4s", "--listing-delay", "3s", "--room", "30"))
	}
	c.run()
	c.look()
	c.report(seed)
}

// userCount is how many users submit: so many that none reaches the bound on unfinished
// runs.
func (c *crasher) userCount() int { return max(5, c.submissions/5) }

// start starts the stand-in with its agents and, with trouble, its faults.
func (c *crasher) start(t *testing.T, dir, hook string, seed uint64) *local.Server {
	t.Helper()
	events := rand.New(rand.NewPCG(seed, 10))
	hooks := &notice.Options{URL: hook, Token: webhookToken, Timeout: 2 * time.Second}
	if c.trouble {
		hooks.Plan = func(string) notice.Plan {
			switch events.IntN(6) {
			case 0:
				return notice.Plan{Lose: true}
			case 1:
				return notice.Plan{Copies: 2}
			case 2:
				return notice.Plan{Delay: time.Duration(events.IntN(8000)) * time.Millisecond}
			}
			return notice.Plan{}
		}
	}
	return evaluators(t, dir, 8, local.Options{Webhook: hooks, Slog: slog.New(slog.DiscardHandler)})
}

// run hands everything in, four at a time, and kills instances meanwhile.
func (c *crasher) run() {
	var mu sync.Mutex
	todo := make(chan *handedIn)
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for h := range todo {
				c.handIn(h, worker)
			}
		})
	}
	killAt := map[int]bool{}
	for len(killAt) < c.kills {
		killAt[1+c.random.IntN(c.submissions-1)] = true
	}
	for i := range c.submissions {
		h := &handedIn{user: fmt.Sprint(11 + i%c.userCount()), mode: schema.ModeTest, public: schema.OutcomePassed, secret: schema.OutcomePassed, ns: 1000 + c.random.IntN(1_000_000)}
		if c.random.IntN(2) == 0 {
			h.mode = schema.ModeLeaderboard
		}
		switch c.random.IntN(5) {
		case 0:
			h.public = schema.OutcomeWrong
		case 1:
			h.secret = schema.OutcomeWrong
		}
		h.code = fmt.Sprintf("# want %s %s %d\n# submission %d\ndef custom_kernel(data):\n    return data\n", h.public, h.secret, h.ns, i)
		mu.Lock()
		c.submitted = append(c.submitted, h)
		mu.Unlock()
		if c.trouble {
			c.disturb()
		}
		todo <- h
		if killAt[i] {
			victim := c.running[c.random.IntN(len(c.running))]
			time.Sleep(time.Duration(c.random.IntN(400)) * time.Millisecond) // any moment will do
			victim.kill()
			victim.start()
		}
	}
	close(todo)
	group.Wait()
	for _, e := range c.standIn.Faults.List() {
		c.standIn.Faults.Remove(e.ID)
	}
}

// handIn submits until it is accepted. Of an answer that did not come nobody knows
// whether it would have said so.
func (c *crasher) handIn(h *handedIn, worker int) {
	ctx, stop := context.WithTimeout(c.t.Context(), campaignLimit)
	defer stop()
	for try := worker; ; try++ {
		at := c.running[try%len(c.running)]
		id, err := c.submit(ctx, at.address, h.user, "sort", "CPU_BK", h.mode, h.code)
		switch {
		case err == nil:
			h.id = id
			return
		case errors.Is(err, errUncertain):
			h.uncertain++
		case ctx.Err() != nil:
			c.t.Errorf("submitting: %v", err)
			return
		case strings.HasPrefix(err.Error(), "got "):
			c.t.Errorf("refused: %v", err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// disturb makes one of Buildkite's calls fail, now and then.
func (c *crasher) disturb() {
	legs := restLegs[:5]
	text := fmt.Sprintf("%s %s after=%d count=1", legs[c.random.IntN(len(legs))], actions[c.random.IntN(len(actions))], c.random.IntN(3))
	rule, err := fault.Parse(text)
	if err == nil {
		_, err = c.standIn.Faults.Add(rule)
	}
	if err != nil {
		c.t.Errorf("%s: %v", text, err)
	}
}

// look waits until everything is done, and compares.
func (c *crasher) look() {
	db := c.store()
	ctx, stop := context.WithTimeout(c.t.Context(), patience)
	defer stop()
	byCode := map[string][]*store.Polled{}
	last := int64(0)
	for _, h := range c.submitted {
		last = max(last, h.id)
	}
	for id := int64(1); id <= last+int64(c.submissions); id++ {
		p := c.done(ctx, db, id)
		if p != nil {
			byCode[p.Code] = append(byCode[p.Code], p)
		}
	}
	for _, h := range c.submitted {
		found := byCode[h.code]
		if !slices.ContainsFunc(found, func(p *store.Polled) bool { return p.ID == h.id }) {
			c.found.lost = append(c.found.lost, fmt.Sprintf("submission %d was accepted and is not there", h.id))
		}
		if len(found) > 1+h.uncertain {
			c.found.doubled = append(c.found.doubled, fmt.Sprintf("%d submissions of one text, %d answers did not come", len(found), h.uncertain))
		}
		for _, p := range found {
			if why := h.wrong(p); why != "" {
				c.found.wrong = append(c.found.wrong, fmt.Sprintf("submission %d (%s, %s, %s): %s", p.ID, h.mode, h.public, h.secret, why))
			}
		}
	}
	c.builds(ctx)
	if out := c.do("db", "check"); !strings.Contains(out, "are what the runs say") {
		c.t.Errorf("db check: %s", out)
	}
}

// done waits until a submission is done; nil when there is none.
func (c *crasher) done(ctx context.Context, db *store.Store, id int64) *store.Polled {
	for {
		p, err := db.Poll(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil && ctx.Err() == nil:
			c.t.Fatal(err)
		case ctx.Err() != nil:
			c.found.hung = append(c.found.hung, fmt.Sprintf("submission %d: %+v", id, p))
			return nil
		case p.Done:
			return p
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// wrong says what of a submission is not as it should be.
func (h *handedIn) wrong(p *store.Polled) string {
	rows := 1 // of a run that failed in its first phase, and of a test
	if h.mode == schema.ModeLeaderboard {
		rows = 0
		for _, outcome := range []string{h.public, h.secret} {
			rows += map[bool]int{true: 3, false: 1}[outcome == schema.OutcomePassed]
		}
	}
	ranks := h.mode == schema.ModeLeaderboard && h.public == schema.OutcomePassed && h.secret == schema.OutcomePassed
	switch {
	case len(p.Open) > 0:
		return fmt.Sprintf("%d runs are open", len(p.Open))
	case len(p.Runs) != rows:
		return fmt.Sprintf("%d rows, want %d; job %+v", len(p.Runs), rows, p.Job)
	case h.mode == schema.ModeLeaderboard && (len(p.Verdicts) != 1 || p.Verdicts[0].Ranks != ranks):
		return fmt.Sprintf("verdicts %+v, want ranks %v", p.Verdicts, ranks)
	case ranks && *p.Verdicts[0].Score != float64(h.ns)/1e9:
		return fmt.Sprintf("score %v, want %v", *p.Verdicts[0].Score, float64(h.ns)/1e9)
	}
	return ""
}

// builds counts those of each run, when all of them are over.
func (c *crasher) builds(ctx context.Context) {
	passed := map[string][]int{}
	for _, b := range c.standIn.Engine.Builds(engine.BuildFilter{}) {
		if b.FinishedAt.IsZero() {
			var err error
			if b, err = c.standIn.Engine.Wait(ctx, b.ID); err != nil {
				c.found.left = append(c.found.left, fmt.Sprintf("build %d is %s", b.Number, b.State))
				continue
			}
		}
		if b.State != engine.BuildCanceled {
			passed[b.MetaData["run_id"]] = append(passed[b.MetaData["run_id"]], b.Number)
		}
	}
	for id, builds := range passed {
		if len(builds) > 1 {
			c.found.doubled = append(c.found.doubled, fmt.Sprintf("run %s: builds %v", id, builds))
		}
	}
}

func (c *crasher) report(seed uint64) {
	w := c.found
	uncertain := 0
	for _, h := range c.submitted {
		uncertain += h.uncertain
	}
	c.t.Logf("seed %d, %s, %d instances: %d submissions, %d kills, %d answers that did not come; lost %d, doubled %d, wrong %d, hung %d, left over %d",
		seed, c.crashPlan.database, c.instances, len(c.submitted), c.kills, uncertain, len(w.lost), len(w.doubled), len(w.wrong), len(w.hung), len(w.left))
	for name, all := range map[string][]string{"lost": w.lost, "doubled": w.doubled, "wrong": w.wrong, "hung": w.hung, "left over": w.left} {
		if len(all) > 0 {
			c.t.Errorf("%s: %d, such as %s", name, len(all), strings.Join(all[:min(5, len(all))], "\n  "))
		}
	}
}

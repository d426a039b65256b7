package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/popcorn"
	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

// restarts is how often a rolling restart stops one of the two instances.
const restarts = 6

// Two instances on one PostgreSQL, behind nginx as docs/kbserve.md has it, are restarted
// one after the other while users submit. No submission is lost or evaluated twice, and
// nginx finds an instance for all requests but those of the moment in which one stops.
func TestSlowRollingRestart(t *testing.T) {
	testenv.NeedSlow(t)
	c := &crasher{crashPlan: crashPlan{database: "PostgreSQL", instances: 2, submissions: 42}, random: rand.New(rand.NewPCG(1, 11))}
	addresses := []string{freeAddress(t), freeAddress(t)}
	p := startProxy(t, addresses...)
	c.backendRig = newBackendRig(t, c.start(t, t.TempDir(), "http://"+addresses[0]+"/webhooks/buildkite", 1), c.crashPlan.database)
	users := []string{"11", "12", "13", "14", "15", "16"}
	for _, id := range users {
		c.user(id)
	}
	c.do("board", "create", "sort", filepath.Join(root, "examples", "sort_py"), "--deadline", "2100-01-01", "--gpu", "CPU_BK")
	for _, address := range addresses {
		c.running = append(c.running, c.serve(address, "--rate", "0", "--url", "https://"+proxyHost, "--proxy", "127.0.0.1"))
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var posts, refused atomic.Int64
	// post returns the submission's id, or the status of a refusal. nginx sends nothing a
	// second time that an instance may have read.
	post := func(user, board, code string) (id int64, status int) {
		client := popcorn.Client{URL: "https://" + proxyHost, CLIID: c.users[user], HTTP: &p.client}
		accepted, err := client.Submit(ctx, board, "CPU_BK", schema.ModeTest, "submission.py", []byte(code))
		posts.Add(1)
		var answer *popcorn.Refusal
		switch {
		case err == nil:
			return accepted.ID, http.StatusAccepted
		case !errors.As(err, &answer):
			t.Errorf("submitting: %v", err)
			return 0, 0
		case answer.Status == http.StatusBadGateway:
			refused.Add(1)
		}
		return 0, answer.Status
	}
	for n := range c.submissions {
		h := &handedIn{user: users[n%len(users)], mode: schema.ModeTest, public: schema.OutcomePassed, secret: schema.OutcomePassed, ns: 1000 + n}
		h.code = fmt.Sprintf("# want %s %s %d\ndef custom_kernel(data):\n    return data\n", h.public, h.secret, h.ns)
		c.submitted = append(c.submitted, h)
	}
	db := c.store()
	begun := make(chan int, c.submissions)
	ended := make(chan bool)
	var submitters, others sync.WaitGroup
	for u := range users {
		submitters.Go(func() {
			for n := u; n < c.submissions; n += len(users) {
				begun <- n
				h, status := c.submitted[n], http.StatusBadGateway
				for status == http.StatusBadGateway && ctx.Err() == nil { // nothing was stored
					h.id, status = post(h.user, "sort", h.code)
				}
				if status != http.StatusAccepted {
					t.Errorf("submission %d: status %d", n, status)
				}
				c.done(ctx, db, h.id)
			}
		})
	}
	for range 4 { // requests at every moment of a restart
		others.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-ended:
					return
				case <-time.After(10 * time.Millisecond):
				}
				if _, status := post(users[0], "none", "x = 1\n"); status != http.StatusNotFound && status != http.StatusBadGateway {
					t.Errorf("a submission to no board: status %d", status)
				}
			}
		})
	}
	for r := range restarts {
		for range c.submissions / restarts {
			<-begun
		}
		i := c.running[r%2]
		i.signal(syscall.SIGTERM)
		i.start()
	}
	submitters.Wait()
	close(ended)
	others.Wait()
	t.Logf("%d restarts, %d requests, %d answered with 502", restarts, posts.Load(), refused.Load())
	if n := refused.Load(); n > restarts {
		t.Errorf("%d of %d requests were answered with 502, want at most one for each of %d restarts", n, posts.Load(), restarts)
	}
	c.look()
	c.report(1)
}

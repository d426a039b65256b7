package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/localtest"
	"github.com/gpu-mode/kbgen/local/notice"
)

// Two hundred submissions at 4,000 an hour, by popcorn-cli's protocol through one
// kbserve and the rate limit of an organization, in real time: with events, without,
// and with events of which every third is lost. The three run side by side.
func TestSlowServeFourThousandAnHour(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	for _, tt := range []struct {
		name  string
		hooks bool
		lost  int // each so many; 0: none
		calls float64
	}{{"events", true, 0, 1.3}, {"no events", false, 0, 1.5}, {"events lost", true, 3, 1.5}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			serveAtRate(t, tt.hooks, tt.lost, tt.calls)
		})
	}
}

func serveAtRate(t *testing.T, hooks bool, lost int, most float64) {
	// With fewer submissions the polls while the last ones run weigh more.
	const perHour, machines, submissions = 4000, 60, 200
	address, metrics := freeAddress(t), freeAddress(t)
	options := local.Options{Dir: t.TempDir(), RateLimits: true, UserLimit: 200}
	if hooks {
		events := 0
		options.Webhook = &notice.Options{URL: "http://" + address + "/webhooks/buildkite", Token: webhookToken, Events: []string{"build.finished"}, Plan: func(string) notice.Plan {
			events++
			return notice.Plan{Lose: lost > 0 && events%lost == 0}
		}}
	}
	s := localtest.Start(t, options)
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(func() {
		stop()
		group.Wait()
	})
	if _, err := s.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: campaignSteps, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	for i := range machines {
		m := &machine{t: t, engine: s.Engine, random: rand.New(rand.NewPCG(1, uint64(i)))}
		group.Go(func() { m.work(ctx) })
	}
	b := newBackendRig(t, s, "SQLite")
	for id := range 20 {
		b.user(strconv.Itoa(100 + id))
	}
	b.do("board", "create", "sort", filepath.Join(root, "examples", "sort_py"), "--deadline", "2100-01-01", "--gpu", "CPU_BK")
	i := b.serve(address, "--rate", "0", "--metrics", metrics)
	tick := time.NewTicker(time.Hour / perHour)
	defer tick.Stop()
	var ids []int64
	for n := range submissions {
		id, err := b.submit(ctx, address, strconv.Itoa(100+n%20), "sort", "CPU_BK", "test", fmt.Sprintf("# %d\n", n))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		<-tick.C
	}
	c := &crasher{backendRig: b, crashPlan: crashPlan{}}
	waiting, giveUp := context.WithTimeout(ctx, patience)
	defer giveUp()
	db := b.store()
	for _, id := range ids {
		if c.done(waiting, db, id) == nil {
			t.Fatalf("submission %d is not done: %v", id, c.found.hung)
		}
	}
	count := scrape(t, metrics)
	each := count["kbserve_buildkite_requests_total"] / float64(submissions)
	t.Logf("%.2f calls a submission: %v creates, %v polls, %v in all; %v hints; %.0f MB resident", each, count["kbserve_buildkite_creates_total"], count["kbserve_buildkite_polls_total"],
		count["kbserve_buildkite_requests_total"], count["kbserve_webhook_hints_total"], count["process_resident_memory_bytes"]/1e6)
	if each > most {
		t.Errorf("%.2f calls a submission, want at most %.2f", each, most)
	}
	if count["kbserve_buildkite_creates_total"] != float64(submissions) {
		t.Errorf("%v builds were asked for, want %d", count["kbserve_buildkite_creates_total"], submissions)
	}
	i.stop()
}

// scrape reads the metrics without labels.
func scrape(t *testing.T, address string) map[string]float64 {
	t.Helper()
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	found := map[string]float64{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			found[name] = v
		}
	}
	return found
}

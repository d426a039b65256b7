package web

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// A world is a competition in full swing.
type world struct {
	*rig
	right, wrong, waiting, running, others, test, profiled, fault int64
	code                                                          string // an invite that is not claimed yet
}

var names = []string{"alice", "bob", "Grace Hopper", "warp_divergence", "tensorcore42", "毛利", "smem_bank", "løkken", "k3rnel", "occupancy", "ada", "fp8-or-bust", "Łukasz", "mallory"}

// made is the world that the first test has made: the others copy its database.
var made struct {
	sync.Mutex
	file  []byte
	world world
}

func newWorld(t testing.TB) *world {
	t.Helper()
	made.Lock()
	defer made.Unlock()
	if made.file == nil {
		made.world, made.file = makeWorld(t)
	}
	file := filepath.Join(t.TempDir(), "kb.db")
	if err := os.WriteFile(file, made.file, 0o600); err != nil {
		t.Fatal(err)
	}
	w := made.world
	cookies := w.cookies
	w.rig = rigOn(t, file)
	w.cookies = maps.Clone(cookies)
	w.queue.off["MI300"] = "no vendor serves this queue yet"
	w.queue.log = "+++ Evaluating matmul\nok\n"
	return &w
}

// makeWorld fills a database and returns it.
func makeWorld(t testing.TB) (world, []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kb.db")
	if _, _, err := database.Migrate(t.Context(), "sqlite:"+file); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), "sqlite:"+file)
	if err != nil {
		t.Fatal(err)
	}
	w := world{rig: &rig{t: t, store: s, cookies: map[string]string{}}}
	w.fill()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return w, content
}

func (w *world) fill() {
	w.t.Helper()
	w.login(boss, "Boss")
	for i, n := range names {
		w.login(fmt.Sprint(101+i), n)
	}
	matmul := board("matmul", "B200", "H100", "MI300")
	matmul.Policy = &ranking.Policy{Harness: schema.HarnessIsolated, Sandbox: schema.SandboxPartial, ClearTiming: true, Ties: true}
	matmul.Limits = []store.Limit{{Category: schema.ModeLeaderboard, PerHour: 60}, {GPU: "B200", Category: schema.ModeTest, PerHour: 200}}
	sort := board("sort-v2", "H100", "A100")
	sort.Deadline, sort.Description = time.Now().Add(31*time.Hour), "Sort 32-bit numbers, whatever their order was."
	sort.Task.Extension = schema.Extension{Harness: schema.HarnessIsolated, Inputs: schema.InputsCold, Evidence: schema.MinEvidence{Runs: 20, Width: 0.075}}
	conv := board("conv2d", "H100")
	closed := board("secret-lab", "B200")
	closed.Visibility, closed.Deadline = store.Closed, time.Now().Add(60*24*time.Hour)
	w.save(matmul, sort, conv, closed)

	speed := map[int64]float64{}
	for round := range 5 {
		for i := range names {
			for _, at := range []struct{ board, gpu string }{{"matmul", "B200"}, {"matmul", "H100"}, {"conv2d", "H100"}} {
				if (i*7+round*3+len(at.gpu))%5 > 2-round/3 || i >= 11 && at.gpu == "B200" {
					continue
				}
				id := w.accept(store.Submission{Board: at.board, GPU: at.gpu, UserID: fmt.Sprint(101 + i), FileName: fmt.Sprintf("%s_v%d.py", at.board, round+1), NoLimits: true,
					Time: time.Now().Add(-time.Duration(11-2*round)*24*time.Hour + time.Duration(i*97)*time.Minute)})
				speed[id] = 30_000*math.Pow(.82, float64(round)) + float64(i*i%31)*510 + float64(len(at.board))*100
			}
		}
	}
	w.evaluate(func(p store.PlannedRun) *schema.Result { return result(p.GPU, speed[p.Submission]) })
	conv.Deadline = time.Now().Add(-3 * 24 * time.Hour)
	w.save(conv)

	w.right = w.accept(store.Submission{Board: "matmul", GPU: "H100", UserID: alice, FileName: "tiled.py", NoLimits: true, Time: time.Now().Add(-90 * time.Minute)})
	w.others = w.accept(store.Submission{Board: "matmul", GPU: "H100", UserID: bob, FileName: "bob_wgmma.py", NoLimits: true, Code: []byte("canary_code_of_bob = 1\n"), Time: time.Now().Add(-80 * time.Minute)})
	w.evaluate(func(p store.PlannedRun) *schema.Result { return result(p.GPU, 11_000+float64(p.Submission)) })
	w.wrong = w.accept(store.Submission{Board: "matmul", GPU: "B200", UserID: alice, FileName: "broken.py", NoLimits: true, Time: time.Now().Add(-50 * time.Minute)})
	w.evaluate(func(p store.PlannedRun) *schema.Result { return wrong(p.GPU) })
	w.test = w.accept(store.Submission{Board: "sort-v2", GPU: "H100", Mode: schema.ModeTest, UserID: alice, FileName: "radix.py", Time: time.Now().Add(-40 * time.Minute)})
	w.evaluate(func(p store.PlannedRun) *schema.Result {
		r := result(p.GPU, 10)
		r.Runs, r.Measurements = r.Runs[:1], nil
		return r
	})
	w.profiled = w.accept(store.Submission{Board: "sort-v2", GPU: "H100", Mode: schema.ModeProfile, UserID: alice, FileName: "slow.py", Time: time.Now().Add(-30 * time.Minute)})
	w.evaluate(func(p store.PlannedRun) *schema.Result {
		r := result(p.GPU, 10)
		r.Runs, r.Measurements = schema.Runs{r.Runs[0], r.Runs[0]}, nil
		r.Harness = &schema.HarnessReport{Name: schema.HarnessIsolated, Evidence: schema.MinEvidence{Runs: 20}, Proof: &schema.Proof{Time: time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)}}
		for i := range r.Runs {
			r.Runs[i].Name = fmt.Sprintf("profile.%d", i)
			r.Runs[i].Profile = &schema.ProfileResult{Profiler: "Nsight-Compute", Trace: base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "zip %d", i))}
		}
		return r
	})
	w.fault = w.accept(store.Submission{Board: "matmul", GPU: "H100", UserID: alice, FileName: "unlucky.py", NoLimits: true, Time: time.Now().Add(-20 * time.Minute)})
	w.evaluate(func(p store.PlannedRun) *schema.Result { return judged(p, schema.OutcomeAmbiguous) })
	w.running = w.accept(store.Submission{Board: "matmul", GPU: "B200", UserID: bob, NoLimits: true})
	claimed, err := w.store.Claim(context.Background(), "test", 2, nil, time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range claimed {
		w.begin(p)
	}
	for i := range 4 {
		w.waiting = w.accept(store.Submission{Board: "matmul", GPU: "B200", UserID: fmt.Sprint(101 + (i+1)%4), NoLimits: true})
	}
	w.waiting = w.accept(store.Submission{Board: "matmul", GPU: "B200", UserID: alice, NoLimits: true, FileName: "persistent_tma_warp_specialised_kernel.py"})
	codes, err := w.store.NewInvites(context.Background(), []string{"secret-lab"}, 2)
	if err != nil {
		w.t.Fatal(err)
	}
	w.code = codes[0]
	if _, err := w.store.ClaimInvite(context.Background(), codes[1], alice); err != nil {
		w.t.Fatal(err)
	}
}

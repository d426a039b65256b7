package harness

import (
	"time"

	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/schema"
)

// A sampling is how often a case is measured.
type sampling struct {
	repeats int           // at most
	total   time.Duration // of kernel time, after which it is enough
	wall    time.Duration // of everything; what counts by then counts
	err     float64       // of the mean, relative, at which it is enough
}

// rules are what a known main file prescribes for what is written and when, so
// that who reads a result sees no difference.
//
// Source: the eval.py files of gpu-mode/reference-kernels, see [plan.KnownHarness].
type rules struct {
	benchmark, leaderboard sampling

	// typed: case values have the payload's types. Otherwise they are what the
	// main file makes of their text: integers or words, so that False is a word.
	typed bool
	// boolWords: true and false in lower case are booleans; tuples: lists in
	// brackets become tuples of integers.
	boolWords, tuples bool
	// combine: a secret seed is mixed into the cases' own; otherwise it only sets
	// the reference's generators.
	combine bool
	// lastOnly: leaderboard mode measures the last case, gives neither best nor
	// worst, and tells a failure as test 0, without a check.
	lastOnly bool
	// specAfter: in leaderboard mode a case's line is written after its run.
	specAfter bool
	// benchmarkSpecAfter: in benchmark mode, too.
	benchmarkSpecAfter bool
	// lateImport: a test run imports the submission at its first case, whose line is
	// written by then. warmUp: a measuring run calls it on the first case before it
	// writes anything, warmUpAll: in leaderboard mode on every case.
	lateImport, warmUp, warmUpAll bool
	// failStatus is the exit status of a failed leaderboard run.
	failStatus int
}

// wallLimit is Kernelbot's on one case.
const wallLimit = 120 * time.Second

func sampled(repeats int, total time.Duration) sampling {
	return sampling{repeats, total, wallLimit, 0.001}
}

// rulesFor returns the rules of a known main file, ok false when it stays with
// its own harness; "" is a task that brings none.
func rulesFor(variant string) (r rules, ok bool) {
	r = rules{ // of most main files, and of tasks that bring none
		benchmark: sampled(100, 10*time.Second), leaderboard: sampled(100, 30*time.Second),
		combine: true, specAfter: true, lateImport: true, warmUp: true, failStatus: judge.ExitPass,
	}
	switch variant {
	case "": // ours: within 1 %, and in seconds
		r.typed, r.lateImport, r.warmUp = true, false, false
		r.benchmark = sampling{100, 10 * time.Second, 2 * time.Second, 0.01}
		r.leaderboard = sampling{100, 30 * time.Second, 4 * time.Second, 0.01}
	case "pmpp", "mla_decode":
		r.combine, r.lastOnly, r.lateImport = false, true, false
		r.benchmark.err, r.leaderboard.err = 0.01, 0.01
	case "pmpp_v2", "amd", "trimul", "kernelbot":
	case "amd_202602":
		r.boolWords = true
		r.benchmark = sampled(1000, 50*time.Second)
	case "nvidia", "nvidia_batch":
		r.warmUpAll = variant == "nvidia_batch"
		r.benchmark, r.leaderboard = sampled(200, 10*time.Second), sampled(1000, 30*time.Second)
	case "nvidia_group":
		r.tuples, r.warmUpAll = true, true
	case "eigh", "qr":
		r.benchmark, r.leaderboard = sampled(200, 10*time.Second), sampled(1000, 30*time.Second)
		r.specAfter, r.warmUpAll, r.failStatus = false, true, judge.ExitFail
	case "cholesky":
		r.benchmark, r.leaderboard = sampled(200, 10*time.Second), sampled(1000, 30*time.Second)
		r.benchmarkSpecAfter, r.failStatus = true, judge.ExitFail
	default:
		return r, false
	}
	return r, true
}

// sampling returns how a mode measures.
func (r *rules) sampling(mode string) sampling {
	if mode == schema.ModeLeaderboard {
		return r.leaderboard
	}
	return r.benchmark
}

// legacyWhy says why a known main file stays the harness of its tasks, "" for
// the others.
func legacyWhy(variant string) string {
	switch variant {
	case "helion":
		return "its tasks are timed in CUDA graphs, which no GPU has shown the isolated harness to do"
	case "amd_distributed":
		return "its tasks need a process group over several GPUs"
	case "moe_mxfp4":
		return "its task goes wrong when its inputs lie at other addresses than they were made at"
	case "cross_entropy":
		return "its task has another form: two functions, and inputs that its main file makes"
	}
	return ""
}

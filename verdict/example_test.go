package verdict_test

import (
	"fmt"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/verdict"
)

// One result, for a terminal and for an annotation.
func Example() {
	result := &schema.Result{
		Success: true, RunID: "sub-1-CPU_BK-0a1b2c", Outcome: schema.NewOutcome(schema.OutcomeWrong, ""),
		Runs: schema.Runs{{Name: "test", EvalResult: schema.EvalResult{Run: &schema.RunResult{
			Success: true, Duration: 0.75,
			Result: schema.Report{
				{Key: "test-count", Value: "2"},
				{Key: "test.0.spec", Value: "size: 127"}, {Key: "test.0.status", Value: "pass"},
				{Key: "test.1.spec", Value: "size: 128"}, {Key: "test.1.status", Value: "fail"},
				{Key: "test.1.error", Value: "mismatch at 3"},
			},
		}}}},
	}
	v := verdict.OfRanked(result, schema.RankLast)
	fmt.Print(v.Text())
	fmt.Printf("---\n%s", v.Markdown())
	// Output:
	// ❌ wrong: a case failed its check: the answer is wrong
	//
	// test: failed after 0.8 s
	//   ✅ size: 127
	//   ❌ size: 128
	//      > mismatch at 3
	//
	// what you can do: Compare your answer with the reference for the case that failed, and submit again.
	// ---
	// **wrong** `sub-1-CPU_BK-0a1b2c` `a case failed its check: the answer is wrong`
	//
	// - failed after 0.8 s, 1 passed: `test`
	// - ❌ test.1: `size: 128: mismatch at 3`
	//
	// - what you can do: Compare your answer with the reference for the case that failed, and submit again.
}

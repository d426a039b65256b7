package schema_test

import (
	"fmt"

	"github.com/gpu-mode/kbgen/schema"
)

// A payload travels in variables of the build, and comes out as it went in.
func ExampleFindPayload() {
	sent := &schema.Payload{
		Lang: schema.LangPython, Mode: schema.ModeTest, Main: "eval.py",
		Sources:          schema.Files{{Name: "eval.py", Text: "print('check: pass')"}},
		Tests:            []schema.Case{{{Name: "n", Value: schema.IntValue(127)}}},
		TestTimeout:      schema.Seconds(60),
		BenchmarkTimeout: schema.Seconds(60),
		RankedTimeout:    schema.Seconds(60),
	}
	encoded, err := sent.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	build, err := schema.PayloadEnv(encoded)
	if err != nil {
		fmt.Println(err)
		return
	}

	found, err := schema.FindPayload(func(name string) (string, bool) { v, ok := build[name]; return v, ok })
	if err != nil {
		fmt.Println(err)
		return
	}
	got, err := schema.DecodePayload(found)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(build), "variable,", got.Lang, got.Mode, got.Main, got.Phases())
	fmt.Print(schema.CasesText(got.Tests, false))
	// Output:
	// 1 variable, py test eval.py [test]
	// n: 127
}

// An outcome says who has to act, and with which status kbrun exits.
func ExampleNewOutcome() {
	for _, o := range []schema.Outcome{
		schema.NewOutcome(schema.OutcomeWrong, ""),
		schema.NewOutcome(schema.OutcomeGPUBusy, "GPU 0 is used by 1 process"),
	} {
		fmt.Printf("%s: fault %s, retry %t, exit %d: %s\n", o.Name, o.Fault, o.Retry, o.ExitStatus(), o.Text)
	}
	// Output:
	// wrong: fault submission, retry false, exit 0: a case failed its check: the answer is wrong
	// gpu-busy: fault machine, retry true, exit 75: GPU 0 is used by 1 process
}

// What kbrun writes, and what a launcher reads.
func ExampleDecodeResult() {
	written := &schema.Result{Success: true, RunID: "sub-42", Outcome: schema.NewOutcome(schema.OutcomePassed, "")}
	data, err := written.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := schema.DecodeResult(data)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.RunID, r.Outcome.Name, len(r.Runs))
	// Output:
	// sub-42 passed 0
}

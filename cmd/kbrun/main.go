// Kbrun judges a kernel submission on the machine it runs on: payload in,
// result.json out.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/runner/job"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

func main() {
	sandbox.Main() // a submission's sandbox begins as a second run of kbrun
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), ignored...)
	vars, err := job.HideEnviron(os.Args, os.Environ())
	env := cli.Process()
	env.LookupEnv, env.Environ = vars.Lookup, vars.List
	return program(err).Run(ctx, env)
}

// ignored are the signals that would end kbrun without a word. A log that nobody
// reads any more must not keep the result from being written, and a submission
// that may send signals must not end its judge and leave a result of its own.
// Faults of kbrun's own still end it; SIGKILL and SIGSTOP nobody can ignore.
var ignored = []os.Signal{
	syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGTRAP, syscall.SIGSEGV,
	syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGSYS, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGPROF, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGIO,
}

type grammar struct {
	Doctor      doctorCmd   `cmd:""`
	Evaluate    evaluateCmd `cmd:""`
	Payload     payloadCmd  `cmd:""`
	Prove       proveCmd    `cmd:""`
	DeviceProbe probeCmd    `cmd:"" hidden:""`
}

// program is kbrun; exposed says why its environment could not be hidden.
func program(exposed error) cli.Program {
	return cli.Program{
		Name:    "kbrun",
		Usage:   schema.ExitUsage, // 2 is how a Go program dies by itself, and is retried
		Grammar: &grammar{Evaluate: evaluateCmd{exposed: exposed}, Doctor: doctorCmd{exposed: exposed}},
		Help:    map[string]string{"": helpProgram, "evaluate": helpEvaluate, "doctor": helpDoctor, "payload": helpPayload, "prove": helpProve},
	}
}

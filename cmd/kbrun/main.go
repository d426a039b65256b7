// Kbrun judges a kernel submission on the machine it runs on: payload in,
// result.json out.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/runner/sandbox"
)

func main() {
	sandbox.Main() // a submission's box begins as a second run of kbrun
	os.Exit(run())
}

func run() int {
	vars, err := hideEnviron(os.Args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "kbrun: error: %s\n", err)
		return exitMachine
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A log that nobody reads any more must not keep the result from being
	// written: such writes fail instead of ending the program.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return program().Run(ctx, &cli.Env{
		Args:      os.Args[1:],
		LookupEnv: vars.lookup,
		Environ:   vars.list,
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
	})
}

type grammar struct {
	Doctor      doctorCmd   `cmd:""`
	Evaluate    evaluateCmd `cmd:""`
	Payload     payloadCmd  `cmd:""`
	DeviceProbe probeCmd    `cmd:"" hidden:""`
}

func program() cli.Program {
	return cli.Program{
		Name:    "kbrun",
		Grammar: &grammar{},
		Help:    map[string]string{"": helpProgram, "evaluate": helpEvaluate, "doctor": helpDoctor, "payload": helpPayload},
	}
}

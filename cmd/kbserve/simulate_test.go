package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/internal/testenv"
)

// runInProcess runs one command of kbserve in this process.
func runInProcess(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = program().Run(context.Background(), &cli.Env{Args: args, LookupEnv: func(string) (string, bool) { return "", false }, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
	return status, out.String(), errs.String()
}

// The first command of docs/scale.md prints what the page shows;
// TestSlowScalePage runs all of them.
func TestScalePage(t *testing.T) { replayScalePage(t, 1) }

func TestSlowScalePage(t *testing.T) {
	testenv.NeedSlow(t)
	replayScalePage(t, 100)
}

func replayScalePage(t *testing.T, most int) {
	page, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```console\n\\$ kbserve ([^\n]*)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(shown) < 3 {
		t.Fatalf("the page shows %d commands, want at least 3", len(shown))
	}
	for _, command := range shown[:min(most, len(shown))] {
		if status, stdout, stderr := runInProcess(strings.Fields(command[1])...); status != 0 || stdout != command[2] {
			t.Errorf("kbserve %s: exit status %d, %s\ngot:\n%s\nthe page shows:\n%s", command[1], status, stderr, stdout, command[2])
		}
	}
}

func TestSimulateRefusesWhatItCannotSimulate(t *testing.T) {
	for args, want := range map[string]string{
		"simulate":                        "--gpu",
		"simulate --gpu H100":             `--gpu: got "H100", want NAME=N`,
		"simulate --gpu H100=0":           "GPUs: got H100=0",
		"simulate --gpu H100=1 --users 0": "users: got 0, want at least 1",
		"simulate --gpu H100=1 --rush 0":  "rush: got 0, want 1 to 1000",
	} {
		if status, _, stderr := runInProcess(strings.Fields(args)...); status != cli.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("kbserve %s: exit status %d, %s, want %d and %q", args, status, stderr, cli.ExitUsage, want)
		}
	}
}

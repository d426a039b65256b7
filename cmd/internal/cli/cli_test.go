package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
)

type grammar struct {
	Render renderCmd `cmd:""`
}

type renderCmd struct {
	Kind string `arg:""`
	GPU  string `var:"KERNELBOT_GPU" default:"CPU_BK"`
}

func (c *renderCmd) Run(_ context.Context, env *Env) error {
	switch c.Kind {
	case "usage":
		return Usagef("no such kind")
	case "no/such", "own":
		_, err := os.Open("no/such")
		return fmt.Errorf("reading it: %w", err)
	case "trouble":
		return &ExitError{Status: 75, Err: WithHint(errors.New("disk full"), "free some space")}
	}
	fmt.Fprintf(env.Stdout, "%s on %s\n", c.Kind, c.GPU)
	return nil
}

func TestRun(t *testing.T) {
	help := map[string]string{"": "program page\n", "render": "render page\n"}
	for _, tt := range []struct {
		name           string
		args           []string
		vars           map[string]string
		status         int
		stdout, stderr string
	}{
		{name: "default", args: []string{"render", "x"}, stdout: "x on CPU_BK\n"},
		{name: "variable beats default", args: []string{"render", "x"}, vars: map[string]string{"KERNELBOT_GPU": "H100_BK"}, stdout: "x on H100_BK\n"},
		{name: "flag beats variable", args: []string{"render", "x", "--gpu", "B200_BK"}, vars: map[string]string{"KERNELBOT_GPU": "H100_BK"}, stdout: "x on B200_BK\n"},
		{name: "help of a command", args: []string{"render", "--help"}, stdout: "render page\n"},
		{name: "help of the program", args: []string{"--help"}, stdout: "program page\n"},
		{name: "nothing asked", status: 2, stderr: "program page\n"},
		{name: "unknown flag", args: []string{"render", "x", "--gup", "a"}, status: 2, stderr: "t: error: unknown flag --gup, did you mean \"--gpu\"?\nt: hint: t render --help\n"},
		{name: "a missing argument", args: []string{"render"}, status: 2, stderr: "t: error: missing: KIND\nt: hint: t render --help\n"},
		{name: "a file that is not there", args: []string{"render", "no/such"}, status: 2, stderr: "t: error: reading it: open no/such: no such file or directory\n"},
		{name: "a file of its own", args: []string{"render", "own"}, status: 1, stderr: "t: error: reading it: open no/such: no such file or directory\n"},
		{name: "usage", args: []string{"render", "usage"}, status: 2, stderr: "t: error: no such kind\n"},
		{name: "help as a command", args: []string{"help", "render"}, stdout: "render page\n"},
		{name: "help alone", args: []string{"help"}, stdout: "program page\n"},
		{name: "help of none", args: []string{"help", "rendre"}, status: 2, stderr: "t: error: help: t has no command \"rendre\"\nt: hint: t --help\n"},
		{name: "own status", args: []string{"render", "trouble"}, status: 75, stderr: "t: error: disk full\nt: hint: free some space\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			p := Program{Name: "t", Grammar: &grammar{}, Help: help}
			status := p.Run(context.Background(), &Env{
				Args:      tt.args,
				LookupEnv: func(k string) (string, bool) { v, ok := tt.vars[k]; return v, ok },
				Stdout:    &stdout, Stderr: &stderr,
			})
			if status != tt.status || stdout.String() != tt.stdout || stderr.String() != tt.stderr {
				t.Errorf("Run(%q) = %d, stdout %q, stderr %q; want %d, %q, %q",
					tt.args, status, &stdout, &stderr, tt.status, tt.stdout, tt.stderr)
			}
		})
	}
}

// --debug stands anywhere before "--", and never reaches the command.
func TestDebug(t *testing.T) {
	for _, args := range [][]string{{"--debug", "render", "x"}, {"render", "--debug", "x"}, {"render", "x", "--debug"}} {
		var stdout, stderr bytes.Buffer
		status := Program{Name: "t", Grammar: &grammar{}}.Run(context.Background(), &Env{
			Args: args, LookupEnv: func(string) (string, bool) { return "", false }, Stdout: &stdout, Stderr: &stderr,
		})
		if status != 0 || stdout.String() != "x on CPU_BK\n" || !bytes.Contains(stderr.Bytes(), []byte("debug: t ends with 0 after ")) {
			t.Errorf("%q ends with %d, prints %q and says %q", args, status, &stdout, &stderr)
		}
	}
	var passed []string
	g := struct {
		Hand handing `cmd:"" passthrough:""`
	}{Hand: handing{got: &passed}}
	var stderr bytes.Buffer
	Program{Name: "t", Grammar: &g}.Run(context.Background(), &Env{
		Args: []string{"hand", "x", "--debug"}, LookupEnv: func(string) (string, bool) { return "", false }, Stderr: &stderr,
	})
	if len(passed) != 2 || passed[1] != "--debug" || stderr.Len() > 0 {
		t.Errorf("a command that hands its words on got %q, and %q was said", passed, &stderr)
	}
}

type handing struct {
	Args []string `arg:"" optional:"" passthrough:""`
	got  *[]string
}

func (h *handing) Run(context.Context, *Env) error { *h.got = h.Args; return nil }

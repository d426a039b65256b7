package cli

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

type tool struct {
	Render struct {
		Pipeline string `arg:"" optional:""`
		GPU      string `name:"gpu"`
		Format   string `enum:"yaml,json" default:"yaml"`
		Artifact bool   `default:"true" negatable:""`
		MaxJobs  int
	} `cmd:""`
	Vendor struct {
		Init struct{ Count int } `cmd:""`
	} `cmd:""`
	Probe struct{} `cmd:"" hidden:""`
}

func toolProgram() Program {
	return Program{
		Name: "tool", Grammar: &tool{},
		Help: map[string]string{"": "tool makes things.\n\nusage: tool render\n.dotted \\ line\n", "render": "usage: tool render\n"},
		Values: map[string]func() []string{
			"--gpu":    func() []string { return []string{"H100", "ALL"} },
			"pipeline": func() []string { return []string{"evaluate", "smoke"} },
		},
	}
}

func runTool(args ...string) (stdout, stderr string, status int) {
	var out, said bytes.Buffer
	status = toolProgram().Run(context.Background(), &Env{Args: args, LookupEnv: func(string) (string, bool) { return "", false }, Stdout: &out, Stderr: &said})
	return out.String(), said.String(), status
}

func TestCompletion(t *testing.T) {
	script, _, status := runTool("completion", "bash")
	if status != ExitDone {
		t.Fatalf("completion bash ends with %d", status)
	}
	// What bash itself offers for a command line that ends in a word begun.
	for line, want := range map[string]string{
		"tool re":                 "render",
		"tool render --m":         "--max-jobs",
		"tool render --no":        "--no-artifact",
		"tool render --gpu H":     "H100",
		"tool render --format j":  "json",
		"tool render sm":          "smoke",
		"tool vendor i":           "init",
		"tool vendor init --c":    "--count",
		"tool vendor --c":         "", // of init
		"tool render --deb":       "--debug",
		"tool help ven":           "vendor",
		"tool comp":               "completion",
		"tool completion f":       "fish",
		"tool p":                  "", // hidden
		"tool render --artifact ": "",
	} {
		words := strings.Split(line, " ")
		ask := script + "\nCOMP_WORDS=(" + strings.Join(words, " ") + "); [ ${#COMP_WORDS[@]} -eq " +
			"$1 ] || COMP_WORDS+=(''); COMP_CWORD=$(($1-1)); COMPREPLY=(); _tool; echo \"${COMPREPLY[*]}\"\n"
		out, err := exec.Command("bash", "-c", ask, "bash", strconv.Itoa(len(words))).Output()
		got := strings.TrimSpace(string(out))
		if err != nil || want != "" && got != want || want == "" && (strings.Contains(got, "probe") || strings.Contains(got, "count")) {
			t.Errorf("bash completes %q to %q (%v), want %q", line, got, err, want)
		}
	}
	for shell, want := range map[string]string{"fish": "complete -c tool -n '__fish_seen_subcommand_from render' -x -l gpu -a \"H100 ALL\"\n", "zsh": "#compdef tool\n"} {
		if script, _, _ := runTool("completion", shell); !strings.Contains(script, want) {
			t.Errorf("completion %s lacks %q:\n%s", shell, want, script)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "csh"}, {"completion", "bash", "x"}} {
		if out, said, status := runTool(args...); status != ExitUsage || out != "" || !strings.Contains(said, "want one of bash, zsh, fish") {
			t.Errorf("%q ends with %d, prints %q and says %q", args, status, out, said)
		}
	}
}

// What the other shells offer, where they are installed.
func TestCompletionInOtherShells(t *testing.T) {
	for shell, ask := range map[string]string{
		"fish": "source; complete -C 'tool vendor init --c'; complete -C 'tool render --gpu H'",
		// As bashcompinit calls the function.
		"zsh": "autoload -U compinit && compinit -u -D\neval \"$1\"\n" +
			"COMP_WORDS=(tool vendor init --c) COMP_CWORD=3; emulate ksh -c '_tool; echo ${COMPREPLY[*]}'\n" +
			"COMP_WORDS=(tool render --gpu H) COMP_CWORD=3; emulate ksh -c '_tool; echo ${COMPREPLY[*]}'\n",
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("no %s here to ask", shell)
			}
			script, _, _ := runTool("completion", shell)
			args := []string{"-f", "-c", ask, shell, script}
			if shell == "fish" {
				args = []string{"--no-config", "-c", ask}
			}
			cmd := exec.Command(path, args...)
			cmd.Env = append(cmd.Environ(), "HOME="+t.TempDir())
			cmd.Stdin = strings.NewReader(script)
			out, err := cmd.CombinedOutput()
			if got := strings.Fields(string(out)); err != nil || !slices.Contains(got, "--count") || !slices.Contains(got, "H100") || slices.Contains(got, "--max-jobs") || slices.Contains(got, "init") {
				t.Errorf("%s offers %q (%v), want --count, then H100, and nothing of other places", shell, out, err)
			}
		})
	}
}

func TestMan(t *testing.T) {
	page, _, status := runTool("man")
	for _, want := range []string{".TH TOOL 1", ".SH NAME\ntool \\- makes things\n", ".SH TOOL RENDER\n.nf\nusage: tool render\n.fi\n", "\n\\&.dotted \\e line\n"} {
		if status != ExitDone || !strings.Contains(page, want) {
			t.Errorf("man (status %d) lacks %q:\n%s", status, want, page)
		}
	}
}

// Pages that leave something out are told of it.
func TestUndocumented(t *testing.T) {
	p := toolProgram()
	p.Help = map[string]string{
		"render": "usage: tool render [PIPELINE]\n --gpu, --format and --no-artifact\n",
		"vendor": "usage: tool vendor\n", "paint": "usage: tool paint\n",
	}
	got := p.Undocumented()
	slices.Sort(got)
	want := []string{
		`the help page "paint" belongs to no command`,
		"the help page of render does not name --max-jobs",
		"the help page of vendor init does not name --count",
		"the help page of vendor init does not show how it is called",
	}
	for _, flag := range []string{"render: --format", "render: --gpu", "render: --max-jobs", "render: --no-artifact", "vendor init: --count"} {
		want = append(want, flag+" has no text, want the tag help")
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("undocumented: %q, want %q", got, want)
	}
}

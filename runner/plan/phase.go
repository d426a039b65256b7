package plan

import (
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

const (
	// SubmissionFile is what a warm-up runs, whatever the payload's main is
	// called.
	SubmissionFile = "submission.py"
	// ExtensionMark on the warm-up's stdout shows that it built an extension.
	ExtensionMark = "-DTORCH_EXTENSION_NAME"
)

// A builder makes one phase.
type builder struct {
	p       *schema.Payload
	m       Machine
	only    int  // the one benchmark that it is about; -1: those of the mode
	more    bool // another phase follows
	environ []string
	ph      Phase
}

// place chooses the phase's directories, and the environment of its commands.
func (b *builder) place() {
	b.ph.Directories = directories(filepath.Join(b.m.Root, b.ph.Name))
	b.setEnviron()
}

func directories(dir string) Directories {
	return Directories{Dir: dir, Work: filepath.Join(dir, "work"), Home: filepath.Join(dir, "home"), Temp: filepath.Join(dir, "tmp")}
}

// setEnviron makes the environment of commands in the phase's directories.
func (b *builder) setEnviron() {
	b.environ = append(Environ(b.m.Environ),
		"HOME="+b.ph.Home, "TMPDIR="+b.ph.Temp,
		// What the warm-up leaves in HOME must not be imported by the harness.
		"PYTHONNOUSERSITE=1",
	)
	if b.p.MultiGPU {
		b.environ = append(b.environ, "POPCORN_GPUS="+strconv.Itoa(b.m.GPUs))
	}
}

// command returns a command in the phase's work directory; more is what its
// environment has beyond the phase's.
func (b *builder) command(limit time.Duration, more []string, argv ...string) *Command {
	// Programs ask for a name, and the submission's user id has none.
	environ := slices.Concat(b.environ, more, []string{"USER=submission", "LOGNAME=submission"})
	return &Command{Argv: argv, Dir: b.ph.Work, Environ: environ, Limit: limit}
}

// withReport gives the command a channel for its report.
func (c *Command) withReport() {
	c.Report, c.Environ = true, append(c.Environ, "POPCORN_FD="+strconv.Itoa(ReportFD))
}

// python plans for lang py: files, warm-up, files anew, harness.
//
// The warm-up runs the submission alone so that it fills its build caches (home
// and tmp stay as they are). How it ends does not matter. The work directory is
// new afterwards: the harness lay open to the submission.
func (b *builder) python() {
	b.ph.Files = b.p.Sources
	if _, ok := b.p.Sources.Get(SubmissionFile); ok {
		one := int64(1)
		c := b.command(schema.CompileLimit, nil, "python3", SubmissionFile)
		c.withReport()
		c.Seed, c.Watch, c.More = &one, ExtensionMark, true
		b.ph.WarmUp = c
	}
	if b.p.Main == "" { // kbrun's own harness, which has no command line
		b.test("kbrun-harness")
		return
	}
	b.test("python3", b.p.Main)
}

// cuda plans for lang cu: files, compiler, files away, the binary. The binary
// never sees the sources: they hold the reference.
func (b *builder) cuda() {
	if IsolatedCUDA(b.p) {
		b.isolatedCUDA()
		return
	}
	if b.ph.Refused = b.badIncludeDir(); b.ph.Refused != nil {
		return
	}
	b.ph.Files = slices.Concat(b.p.Sources, b.p.Headers)
	if b.ph.Refused = b.compiler(); b.ph.Refused != nil {
		return
	}
	b.ph.Compile = b.command(schema.CompileLimit, nil, b.args(b.ph.Compiler, b.m.Programs[b.ph.Compiler])...)
	b.ph.Compile.More = true
	b.test("./" + BuiltFile)
}

// test plans the harness, which argv starts.
func (b *builder) test(argv ...string) {
	b.ph.Cases = b.cases()
	argv = append(argv, b.ph.Mode, b.ph.CasesFile())
	if b.ph.Mode == schema.ModeProfile {
		b.ph.Refused = b.profile(argv)
		return
	}
	c := b.command(b.limit(), nil, argv...)
	b.ph.Test = c
	b.finishTest()
	c.Harness, c.Built = b.p.Lang == schema.LangPython, b.p.Lang == schema.LangCUDA
}

// finishTest adds what a harness has with a profiler and without.
func (b *builder) finishTest() {
	b.ph.Test.withReport()
	b.ph.Test.Seed, b.ph.Test.More = b.p.Seed, b.more
}

// limit is the harness's time in this phase; 0 means none.
func (b *builder) limit() time.Duration {
	if d, limited := b.p.Limit(b.ph.Mode).Limit(); limited {
		return max(d, time.Nanosecond)
	}
	return 0
}

// cases is the text of the file that the harness reads.
func (b *builder) cases() string {
	switch {
	case b.ph.Mode == schema.ModeTest:
		return schema.CasesText(b.p.Tests, false)
	case b.only >= 0:
		return b.p.Benchmarks[b.only].Text()
	}
	return schema.CasesText(b.p.Benchmarks, b.p.RankingBy == schema.RankLast)
}

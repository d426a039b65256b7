package harness

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"syscall"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

//go:embed native
var nativeFiles embed.FS

// The files of native; those of one program are put together in this order.
const (
	contractFile = "kbrun.h" // what a task's reference includes
	channelFile  = "channel.h"
	deviceFile   = "device.h"
)

// library is the submission's, beside the worker.
const library = "submission.so"

// Sources are our own files that a program of a C++ task is compiled with,
// beside the task's; the first one's name is in the compiler's command.
func Sources(program string) schema.Files { return sources(program, nativeFile(deviceFile)) }

func sources(program, device string) schema.Files {
	switch program {
	case plan.BuildJudge:
		return schema.Files{
			{Name: plan.JudgeSource, Text: nativeFile(channelFile) + device + nativeFile("judge.cu")},
			{Name: contractFile, Text: nativeFile(contractFile)},
		}
	case plan.BuildLauncher:
		return schema.Files{{Name: plan.LauncherSource, Text: nativeFile(channelFile) + device + nativeFile("launcher.cu")}}
	}
	return schema.Files{{Name: plan.CallSource, Text: nativeFile("call.cu")}}
}

func nativeFile(name string) string {
	text, err := nativeFiles.ReadFile(path.Join("native", name))
	if err != nil {
		panic(err) // it is part of this program
	}
	return string(text)
}

// native reports whether judge and worker are programs.
func (s *Session) native() bool { return s.o.Programs != nil }

// loading is what a worker does before its first case, and failed that this went
// wrong.
func (s *Session) loading() (doing, failed string) {
	if s.native() {
		return "loading the submission", "the submission could not be loaded"
	}
	return "importing " + plan.SubmissionFile, plan.SubmissionFile + " could not be imported"
}

// ofTheTask are the judge's orders that run the task's own files; judge.py has the same.
var ofTheTask = []string{"load", "make", "check", "selftest"}

// crashed returns a TaskError if the task's own files kept the judge from answering: they
// exited, crashed, or ran longer than askLimit. Otherwise it returns err.
func (s *Session) crashed(op string, err error) error {
	broken, ok := errors.AsType[*brokenError](err)
	if !ok || !slices.Contains(ofTheTask, op) {
		return err
	}
	if !s.judge.ended() {
		if broken.why == noAnswer {
			return &TaskError{fmt.Sprintf("the task's own files do not work: one step takes longer than %s", askLimit)}
		}
		return err
	}
	if status := s.judge.state.Exit; status >= 0 && !s.native() {
		return &TaskError{fmt.Sprintf("the task's own files do not work: they end the judge with status %d", status)}
	}
	switch signal := syscall.Signal(-s.judge.state.Exit); signal {
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGABRT:
		return &TaskError{fmt.Sprintf("the task's own files do not work: they end the judge by signal %d (%s)", int(signal), signal)}
	}
	return err
}

// putProgram makes an executable file of another one.
func putProgram(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, os.Chmod(to, 0o755), out.Close()); err != nil {
		return fmt.Errorf("putting a program in place: %w", err)
	}
	return nil
}

package runner

import (
	"context"

	"github.com/gpu-mode/kbgen/schema"
)

const (
	// warmupFile is run whatever the payload's main is called.
	warmupFile = "submission.py"
	// extensionMark on the warm-up's stdout tells that it built an extension.
	extensionMark = "-DTORCH_EXTENSION_NAME"
)

// python is the flow for lang py: files, warm-up, files anew, tester.
func (ph *phase) python(ctx context.Context) error {
	if _, ok := ph.p.Sources.Get(warmupFile); ok {
		if err := ph.warmup(ctx); err != nil {
			return err
		}
	}
	if err := ph.write(ph.p.Sources); err != nil {
		return err
	}
	return ph.test(ctx, "python3", ph.p.Main)
}

// warmup runs the submission alone so that it fills its build caches (home and
// tmp stay as they are). How it ends does not matter. The work directory is
// new afterwards: the harness lay open to the submission.
func (ph *phase) warmup(ctx context.Context) error {
	if err := ph.write(ph.p.Sources); err != nil {
		return err
	}
	one := int64(1)
	c := command{
		argv: []string{"python3", warmupFile}, dir: ph.work, environ: ph.environ,
		limit: schema.CompileLimit, seed: &one, report: true, watch: extensionMark, more: true,
	}
	done, err := ph.run(ctx, c)
	if err != nil {
		return err
	}
	ph.timing.WarmUp = used(done)
	if err := stopped(ctx); err != nil {
		return err
	}
	if done.stdout.seen {
		ph.result.Compilation = &schema.CompileResult{
			NvccFound: true, Success: true, Command: c.text(),
			Stdout: done.stdout.text(), Stderr: done.stderr.text(), ExitCode: done.exitCode,
		}
	}
	return renew(ph.work)
}

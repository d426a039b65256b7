package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkSandbox is a whole sandbox around a program that does nothing, by each
// means; "none" is the program alone, started in the same way.
func BenchmarkSandbox(b *testing.B) {
	for _, means := range candidates() {
		b.Run(means, func(b *testing.B) {
			dir := b.TempDir()
			p := Directories{Dir: filepath.Join(dir, "phase")}
			p.Work, p.Home, p.Temp = filepath.Join(p.Dir, "work"), filepath.Join(p.Dir, "home"), filepath.Join(p.Dir, "tmp")
			own := filepath.Join(dir, "sandbox")
			for _, d := range []string{own, p.Dir, p.Work, p.Home, p.Temp} {
				if err := os.Mkdir(d, 0o755); err != nil {
					b.Fatal(err)
				}
			}
			sandbox, err := Open(Options{Dir: own, Environ: []string{"PATH=/usr/bin:/bin"}, Minimum: "none"})
			if err != nil {
				b.Fatal(err)
			}
			defer sandbox.Close()
			if err := sandbox.Prepare(p); err != nil {
				b.Fatal(err)
			}
			sandbox.untried = []string{means}
			for b.Loop() {
				process, err := sandbox.Start(Command{Path: "/bin/true", Args: []string{"true"}, Dir: "/", Directories: p})
				if err != nil {
					b.Fatal(err)
				}
				if s, err := process.Wait(); err != nil || s.Exit != 0 {
					b.Fatal(s, err)
				}
			}
		})
	}
}

package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// facts returns what a plan has to know of this machine.
func facts(p *schema.Payload, root string, environ []string, runtime string, gpus int) plan.Machine {
	m := plan.Machine{Root: root, Environ: environ, Runtime: runtime, GPUs: gpus, Programs: map[string]string{}}
	env := plan.Environ(environ)
	for _, name := range plan.Programs() {
		if path, err := LookPath(name, env); err == nil {
			m.Programs[name] = path
		}
	}
	for _, dir := range p.IncludeDirs {
		if info, err := os.Stat(dir); filepath.IsAbs(dir) && (err != nil || !info.IsDir()) {
			m.Missing = append(m.Missing, dir)
		}
	}
	return m
}

// LookPath finds a program on the PATH of env, as execvp would in a child with
// that environment. Relative directories on PATH are passed over.
func LookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, _ := schema.LookupEnv(env, "PATH")
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && filepath.IsAbs(file) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s is not on PATH", name)
}

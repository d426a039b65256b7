package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpu-mode/kbgen/node/apply"
	"github.com/gpu-mode/kbgen/node/facts"
)

// setupNode gives a script a machine to set up: facts of one without GPUs, and an
// agent API that knows one token.
func setupNode(env *testscript.Env) error {
	raw, err := os.ReadFile("../../node/facts/testdata/cpu-only.json")
	if err != nil {
		return err
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet || r.URL.Path != "/v3/token":
			w.WriteHeader(http.StatusNotFound)
		case r.Header.Get("Authorization") != "Token bkct_the-right-one-0123456789":
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	env.Defer(api.Close)
	env.Setenv("API", api.URL)
	for _, dir := range []string{"root/run", "root/etc", "root/var/lib", "root/usr/bin"} {
		if err := os.MkdirAll(filepath.Join(env.WorkDir, dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"passwd", "group"} {
		if err := os.WriteFile(filepath.Join(env.WorkDir, "root/etc", name), nil, 0o644); err != nil {
			return err
		}
	}
	var f facts.Facts
	if err := json.Unmarshal(raw, &f); err != nil {
		return err
	}
	f.Agent = nil
	without, err := json.Marshal(f)
	return errors.Join(err, os.WriteFile(filepath.Join(env.WorkDir, "facts.json"), raw, 0o644), os.WriteFile(filepath.Join(env.WorkDir, "noagent.json"), without, 0o644))
}

// printHash is sha256sum, which not every machine has.
func printHash() {
	sum, err := apply.HashFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println(sum)
}

// fakeSystemctl knows what systemctl --root does: links.
func fakeSystemctl() {
	args := slices.DeleteFunc(os.Args[1:], func(s string) bool {
		return slices.Contains([]string{"--no-pager", "--no-ask-password", "--quiet", "--no-reload", "--"}, s)
	})
	root := ""
	args = slices.DeleteFunc(args, func(s string) bool {
		dir, ok := strings.CutPrefix(s, "--root=")
		if ok {
			root = dir
		}
		return ok
	})
	if root == "" {
		fmt.Fprintf(os.Stderr, "systemctl %q: a test must not ask the machine that it runs on\n", args)
		os.Exit(1)
	}
	wants := filepath.Join(root, "etc/systemd/system/multi-user.target.wants")
	for _, unit := range args[1:] {
		link := filepath.Join(wants, unit)
		_, err := os.Lstat(link)
		switch args[0] {
		case "is-enabled":
			if err == nil {
				fmt.Println("enabled")
				return
			}
			if files, _ := filepath.Glob(filepath.Join(root, "etc/systemd/system", strings.Split(unit, "@")[0]+"*")); len(files) == 0 {
				os.Exit(4)
			}
			fmt.Println("disabled")
			os.Exit(1)
		case "enable":
			if err := os.MkdirAll(wants, 0o755); err != nil {
				panic(err)
			}
			_ = os.Symlink("/etc/systemd/system/"+unit, link)
		case "disable":
			_ = os.Remove(link)
			_ = os.Remove(wants)
		}
	}
}

// fakeUseradd and fakeUserdel write the two files that matter.
func fakeUseradd() {
	root, name := prefix(), os.Args[len(os.Args)-1]
	for file, line := range map[string]string{"passwd": ":x:%d:%d::/:/usr/sbin/nologin\n", "group": ":x:%[2]d:\n"} {
		file = filepath.Join(root, "etc", file)
		have, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		id := 64000 + bytes.Count(have, []byte("\n"))
		if err := os.WriteFile(file, append(have, name+fmt.Sprintf(line, id, id)...), 0o644); err != nil {
			panic(err)
		}
	}
}

func fakeUserdel() {
	root, name := prefix(), os.Args[len(os.Args)-1]
	for _, file := range []string{"passwd", "group"} {
		file = filepath.Join(root, "etc", file)
		have, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		lines := slices.DeleteFunc(strings.SplitAfter(string(have), "\n"), func(s string) bool { return strings.HasPrefix(s, name+":") })
		if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o644); err != nil {
			panic(err)
		}
	}
}

func prefix() string { return os.Args[slices.Index(os.Args, "--prefix")+1] }

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
	if err != nil {
		return err
	}
	f.Agent = &facts.Agent{Path: "/usr/local/bin/buildkite-agent", Version: "3.138.0"}
	installed, err := json.Marshal(f)
	return errors.Join(err, os.WriteFile(filepath.Join(env.WorkDir, "installed.json"), installed, 0o644), os.WriteFile(filepath.Join(env.WorkDir, "facts.json"), raw, 0o644), os.WriteFile(filepath.Join(env.WorkDir, "noagent.json"), without, 0o644))
}

// printHash is sha256sum, which not every machine has.
func printHash() {
	sum, err := apply.HashFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println(sum)
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

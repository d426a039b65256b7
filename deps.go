//go:build tools

package kbgen

import (
	_ "github.com/alecthomas/kong"
	_ "github.com/bmatcuk/doublestar/v4"
	_ "github.com/buildkite/go-buildkite/v3/buildkite"
	_ "github.com/buildkite/go-pipeline"
	_ "github.com/buildkite/terminal-to-html/v3"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/uuid"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/xeipuuv/gojsonschema"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "golang.org/x/time/rate"
	_ "gopkg.in/yaml.v3"
)

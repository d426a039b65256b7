// Package kbgen is the root of the module. It holds only what must lie at the
// root of the repository; README.md describes the layout.
package kbgen

import _ "embed"

// Bootstrap is .buildkite/pipeline.yml: the steps to paste into a pipeline's
// settings at Buildkite, and what kblocal serves without --pipeline.
//
//go:embed .buildkite/pipeline.yml
var Bootstrap string

package generator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	agentparser "github.com/buildkite/go-pipeline"
	"github.com/buildkite/go-pipeline/warning"

	"github.com/gpu-mode/kbgen/schema/pipeline"
)

// check refuses a document that is not what was meant, or that the agent or
// Buildkite would take otherwise than it is written. meant is the document as
// it shall be once the agent has interpolated out.
func check(out, meant []byte) error {
	if err := pipeline.Validate(out); err != nil {
		return err
	}
	if _, err := parse(out); err != nil {
		return err
	}
	if bytes.Equal(out, meant) && bytes.IndexByte(out, '$') < 0 {
		return nil // interpolation leaves text without a dollar sign alone
	}
	want, err := parse(meant)
	if err != nil {
		return err
	}
	wantJSON, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("marshalling the parsed pipeline: %w", err)
	}
	for _, env := range []variables{{}, {hostile: true}} {
		got, err := parse(out)
		if err != nil {
			return err
		}
		if err := got.Interpolate(env, false); err != nil {
			return fmt.Errorf("interpolating with %s: %w", env, err)
		}
		gotJSON, err := json.Marshal(got)
		if err != nil {
			return fmt.Errorf("marshalling the interpolated pipeline: %w", err)
		}
		if !bytes.Equal(gotJSON, wantJSON) {
			return fmt.Errorf("interpolating with %s changes the pipeline: %s", env, firstDifference(gotJSON, wantJSON))
		}
	}
	return nil
}

// parse reads a document as the agent does. Its warnings are errors here.
func parse(doc []byte) (*agentparser.Pipeline, error) {
	p, err := agentparser.Parse(bytes.NewReader(doc))
	if w := warning.As(err); w != nil {
		return nil, fmt.Errorf("the agent's parser warns: %w", w)
	}
	if err != nil {
		return nil, fmt.Errorf("the agent's parser refuses it: %w", err)
	}
	if len(p.Steps) == 0 {
		return nil, errors.New("the pipeline has no steps")
	}
	return p, nil
}

// variables is an environment to interpolate with: empty, or one in which
// every name has a value that breaks whatever it gets into.
type variables struct{ hostile bool }

func (v variables) Get(string) (string, bool) {
	if v.hostile {
		return "$(hostile) ${HOSTILE} \"'\n- !!hostile {", true
	}
	return "", false
}

// Set is called for top-level env, which kbgen never writes.
func (v variables) Set(string, string) {}

func (v variables) String() string {
	if v.hostile {
		return "a hostile environment"
	}
	return "an empty environment"
}

// firstDifference quotes a few bytes of both texts where they part.
func firstDifference(got, want []byte) string {
	n := 0
	for n < len(got) && n < len(want) && got[n] == want[n] {
		n++
	}
	excerpt := func(b []byte) string {
		return strings.ToValidUTF8(string(b[max(0, n-20):min(len(b), n+30)]), "")
	}
	return fmt.Sprintf("got …%q…, want …%q…", excerpt(got), excerpt(want))
}

package popcorn

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema/validation"
)

// answers are the shapes of the server's answers, with all that the client reads.
//
//go:embed answers.json
var answers []byte

var shapes = validation.New(answers)

// read holds an answer to its shape, and decodes it.
func read(shape string, body []byte, into any) error {
	var value any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return fmt.Errorf("an answer that is no JSON: %w", err)
	}
	faults, err := shapes.Validate(shape, value)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range faults {
		errs = append(errs, fmt.Errorf("%s: %s %s", strings.Join(f.Path, "."), f.Keyword, f.Property))
	}
	if errs == nil {
		return json.Unmarshal(body, into)
	}
	return errors.Join(errs...)
}

// A Score is a number, or a string that holds one.
type Score float64

// UnmarshalJSON reads either.
func (s *Score) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(data), `"`), 64)
	*s = Score(f)
	return err
}

package harness

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A testCase is one line of the cases, as the reference gets it.
type testCase struct {
	spec string // the line, for the report
	args []argument
}

// An argument is one of generate_input's, in JSON; a tuple is {"tuple": […]}.
type argument struct {
	name  string
	value json.RawMessage
}

func (a argument) MarshalJSON() ([]byte, error) { return json.Marshal([]any{a.name, a.value}) }

// readCases makes a phase's cases, with the secret seed in them where the rules
// mix it in.
//
// Errors: a line cannot be read, its own tester would refuse it, too; there is
// nothing to measure.
func (r *rules) readCases(p *plan.Phase, payload *schema.Payload) ([]testCase, error) {
	var cases []testCase
	typed := payload.Benchmarks
	switch {
	case p.Mode == schema.ModeTest:
		typed = payload.Tests
	case p.Mode == schema.ModeProfile: // a phase has one of them
		typed = slices.DeleteFunc(slices.Clone(typed), func(c schema.Case) bool { return c.Text() != p.Cases })
	case payload.RankingBy == schema.RankLast && len(typed) > 1:
		typed = typed[len(typed)-1:]
	}
	if p.Cases == "" {
		if p.Timed() {
			return nil, fmt.Errorf("there is no case to measure")
		}
		return nil, nil
	}
	for i, line := range strings.Split(strings.TrimSuffix(p.Cases, "\n"), "\n") {
		c := testCase{spec: line}
		var err error
		if r.typed {
			c.args, err = typedArguments(typed[i])
		} else {
			c.args, err = r.parse(line)
		}
		if err == nil && payload.Seed != nil && r.combine {
			err = c.combine(*payload.Seed)
		}
		if err != nil {
			return nil, fmt.Errorf("case %d: %w", i, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// typedArguments has the payload's own types.
//
// Error: the seed is no integer. Nothing could be mixed into it, and no fresh one
// be made of it.
func typedArguments(c schema.Case) (args []argument, err error) {
	for _, p := range c {
		if p.Name == seedName && !integer().MatchString(p.Value.JSON()) {
			return nil, fmt.Errorf("seed: got %s, want an integer", text.Shorten(p.Value.JSON(), 60))
		}
		args = append(args, argument{p.Name, json.RawMessage(p.Value.JSON())})
	}
	return args, nil
}

// casePart is one "name: value" of a line, in the widest form that a known
// tester reads.
var casePart = text.Pattern(`^\s*([A-Za-z_]\w*)\s*:\s*(\[[^\]]*\]|\([^)]*\)|[A-Za-z_]\w*|[+-]?[0-9]+)\s*$`)

// parse reads a line as the known testers do.
func (r *rules) parse(line string) (args []argument, err error) {
	for part := range strings.SplitSeq(line, ";") {
		m := casePart().FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("got %q, want name: value", text.Shorten(part, 60))
		}
		args = append(args, argument{m[1], r.value(m[2])})
	}
	return args, nil
}

var integer = text.Pattern(`^[+-]?[0-9]+$`)

// value is what a tester makes of a word.
func (r *rules) value(word string) json.RawMessage {
	switch {
	case integer().MatchString(word):
		n, _ := new(big.Int).SetString(strings.TrimPrefix(word, "+"), 10)
		return json.RawMessage(n.String())
	case r.boolWords && (word == "true" || word == "false"):
		return json.RawMessage(word)
	case r.tuples && (word[0] == '[' || word[0] == '('):
		if items, ok := integers(word[1 : len(word)-1]); ok {
			return json.RawMessage(`{"tuple": [` + items + `]}`)
		}
	}
	quoted, _ := json.Marshal(word) // a string has no error
	return quoted
}

// integers rewrites "1, 2,3" as JSON.
func integers(list string) (string, bool) {
	if strings.TrimSpace(list) == "" {
		return "", true
	}
	var items []string
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(word), 10, 64)
		if err != nil {
			return "", false
		}
		items = append(items, strconv.FormatInt(n, 10))
	}
	return strings.Join(items, ", "), true
}

const seedName = "seed"

// seed is the case's own, nil without one.
func (c *testCase) seed() (at int, seed *big.Int) {
	for i, a := range c.args {
		if a.name == seedName {
			if n, ok := new(big.Int).SetString(string(a.value), 10); ok {
				return i, n
			}
		}
	}
	return 0, nil
}

func (c *testCase) setSeed(at int, seed *big.Int) {
	c.args = append([]argument(nil), c.args...)
	c.args[at].value = json.RawMessage(seed.String())
}

// combine mixes the secret into the case's seed: a + (a+b)(a+b+1)/2, distinct
// for distinct pairs, as Kernelbot has it.
func (c *testCase) combine(secret int64) error {
	at, a := c.seed()
	if a == nil {
		return nil
	}
	sum := new(big.Int).Add(a, big.NewInt(secret))
	product := new(big.Int).Mul(sum, new(big.Int).Add(sum, big.NewInt(1)))
	product.Rsh(product, 1) // one of the two factors is even; Python's // rounds down, too
	c.setSeed(at, product.Add(product, a))
	return nil
}

// fresh is the case with a seed that nobody can foresee; itself without one.
// The seeds stay near the case's: generators may compute with them.
func (c testCase) fresh(random func(n int64) int64) testCase {
	at, seed := c.seed()
	if seed == nil {
		return c
	}
	c.setSeed(at, new(big.Int).Add(seed, big.NewInt(1+random(1<<24))))
	return c
}

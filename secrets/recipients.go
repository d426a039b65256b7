package secrets

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/gpu-mode/kbgen/schema/text"
)

// maxRecipients bounds a recipients file.
const maxRecipients = 64

// A Recipient is one line of a recipients file: a public key with a name and
// its days.
type Recipient struct {
	Name    string // "lab-2026"; small letters, digits and . _ -
	Added   time.Time
	Retired time.Time // zero: it is in use
	Key     *PublicKey
}

// Recipients are a repository's keys, those that are retired among them.
type Recipients []Recipient

// ParseRecipients reads a recipients file. Each line holds four words: name,
// the day on which the key was added, the day on which it was retired or -, and
// the key; # begins a comment.
//
// Errors name the line, all of them joined.
func ParseRecipients(file string) (Recipients, error) {
	var all Recipients
	var faults []error
	for i, line := range strings.Split(file, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r, err := parseRecipient(line)
		switch {
		case err != nil:
		case slices.ContainsFunc(all, func(o Recipient) bool { return o.Name == r.Name }):
			err = fmt.Errorf("got %s again, want a name of its own for every key", r.Name)
		case slices.ContainsFunc(all, func(o Recipient) bool { return o.Key.Text == r.Key.Text }):
			err = fmt.Errorf("got the key of another line again under the name %s", r.Name)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("line %d: %w", i+1, err))
			continue
		}
		all = append(all, *r)
	}
	if len(all) > maxRecipients {
		faults = append(faults, fmt.Errorf("got %d keys, want at most %d", len(all), maxRecipients))
	}
	return all, errors.Join(faults...)
}

func parseRecipient(line string) (*Recipient, error) {
	words := strings.Fields(line)
	if len(words) < 4 {
		return nil, fmt.Errorf("got %d words, want four: name, day added, day retired or -, key", len(words))
	}
	r := &Recipient{Name: words[0]}
	if !keyIDPattern().MatchString(r.Name) || strings.Contains(r.Name, "+") {
		return nil, fmt.Errorf("name: got %s, want small letters, digits and . _ -", text.Quote(r.Name))
	}
	var err error
	if r.Added, err = time.Parse(time.DateOnly, words[1]); err != nil {
		return nil, fmt.Errorf("day added: got %s, want a day as 2026-12-31", text.Quote(words[1]))
	}
	if words[2] != "-" {
		if r.Retired, err = time.Parse(time.DateOnly, words[2]); err != nil {
			return nil, fmt.Errorf("day retired: got %s, want a day as 2026-12-31, or -", text.Quote(words[2]))
		}
	}
	r.Key, err = ParsePublicKey(strings.Join(words[3:], " "))
	return r, err
}

// String is the line of a recipients file.
func (r Recipient) String() string {
	retired := "-"
	if !r.Retired.IsZero() {
		retired = r.Retired.Format(time.DateOnly)
	}
	return fmt.Sprintf("%s %s %s %s", r.Name, r.Added.Format(time.DateOnly), retired, r.Key.Text)
}

// Current returns the keys that are sealed for at a time: those that are not
// retired yet.
//
// Errors: none is left; hybrid ones beside others.
func (rs Recipients) Current(now time.Time) (Recipients, error) {
	current := slices.DeleteFunc(slices.Clone(rs), func(r Recipient) bool { return !r.Retired.IsZero() && !now.Before(r.Retired) })
	if len(current) == 0 {
		return nil, errors.New("got no key that is in use, want at least one")
	}
	hybrid := slices.ContainsFunc(current, func(r Recipient) bool { return r.Key.Kind == Hybrid })
	if i := slices.IndexFunc(current, func(r Recipient) bool { return r.Key.Kind != Hybrid }); hybrid && i >= 0 {
		return nil, fmt.Errorf("%s: got a key of kind %s beside hybrid ones, want one kind or the other: it would give away what they protect",
			current[i].Name, current[i].Key.Kind)
	}
	return current, nil
}

// Keys are the recipients as [Seal] takes them.
func (rs Recipients) Keys() []age.Recipient {
	keys := make([]age.Recipient, len(rs))
	for i, r := range rs {
		keys[i] = r.Key.Recipient
	}
	return keys
}

// KeyID names a set of recipients: their names with + between them, or where
// that grows long a digest of their keys.
func (rs Recipients) KeyID() string {
	names, keys := make([]string, len(rs)), make([]string, len(rs))
	for i, r := range rs {
		names[i], keys[i] = r.Name, r.Key.Text
	}
	slices.Sort(names)
	if id := strings.Join(names, "+"); len(id) <= 63 {
		return id
	}
	slices.Sort(keys)
	sum := sha256.Sum256([]byte(strings.Join(keys, "\n")))
	return fmt.Sprintf("set-%x", sum[:8])
}

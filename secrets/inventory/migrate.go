package inventory

import (
	"errors"
	"fmt"

	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/refused"
)

// Migrate seals the values in old formats anew and puts them into a store,
// whose file is for messages. It returns a line about each value.
//
// Errors: every value that cannot be migrated; the store is then of no use.
func (k *Keys) Migrate(values []Value, to *secrets.Sealer, b secrets.Binding, store *secrets.Store, file string) ([]string, error) {
	type found struct{ place, text string }
	var faults []error
	var report []string
	done := map[string]found{}
	for _, v := range values {
		if v.Format == envelope {
			continue
		}
		opened, err := k.OpenLegacy(v.Text)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", v, err))
			continue
		}
		if first, again := done[v.Name]; again {
			if first.text != string(opened.Text) {
				faults = append(faults, fmt.Errorf("%s: got another value than %s has, want one of them under another name", v, first.place))
			}
			continue
		}
		if _, there := store.Lookup(v.Name); there {
			faults = append(faults, fmt.Errorf("%s: %s has it already", v, file))
			continue
		}
		secret, text, err := to.Seal(v.Name, opened.Text, b)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", v, err))
			continue
		}
		store.Set(secret, text)
		done[v.Name] = found{fmt.Sprintf("%s:%d", v.File, v.Line), string(opened.Text)}
		report = append(report, fmt.Sprintf("%s: %s, now in %s%s", v, opened.Format, file, Weakness(opened)))
	}
	return report, errors.Join(faults...)
}

// Rekey seals the values of a store, whose file is for messages, for other
// recipients; with all, also those that are sealed for them already. It returns
// how many it sealed, and the names of those that lost their signature.
//
// Errors: every value that does not open; the store is then of no use.
func (k *Keys) Rekey(store *secrets.Store, file string, to *secrets.Sealer, all bool) (done int, unsigned []string, err error) {
	var faults []error
	for _, e := range store.Entries {
		secret, err := secrets.Open(e.Envelope, secrets.Identities(k.Private))
		if err == nil && secret.Name != e.Name {
			err = &refused.Refusal{Reason: refused.Renamed, Detail: "it was sealed as " + secret.Name}
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %s: %w", file, e.Line, e.Name, err))
			continue
		}
		if secret.KeyID == to.Recipients.KeyID() && !all {
			continue
		}
		if secret.Signature != nil && to.SigningKey == nil {
			unsigned = append(unsigned, e.Name)
		}
		secret, text, err := to.Reseal(secret)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", file, e.Line, err))
			continue
		}
		store.Set(secret, text)
		done++
	}
	return done, unsigned, errors.Join(faults...)
}

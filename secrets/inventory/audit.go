package inventory

import (
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/legacy"
)

// An Audit is what is known of one value, as kbgen secret audit --json prints it.
type Audit struct {
	File       string   `json:"file"`
	Line       int      `json:"line"`
	Name       string   `json:"name"`
	Format     string   `json:"format"`
	KeyID      string   `json:"kid,omitempty"`
	Issued     string   `json:"issued,omitempty"` // days
	Expires    string   `json:"expires,omitempty"`
	AgeDays    *int     `json:"age_days,omitempty"`
	Passphrase *int     `json:"passphrase_bytes,omitempty"` // that count, of the old formats
	Opened     bool     `json:"opened"`                     // with a key; else it is the file's word
	Problems   []string `json:"problems"`
}

// An Auditor looks at sealed values. Without a private key it believes what a
// store says.
type Auditor struct {
	Keys
	Current string // the key ID of today's recipients, "" if unknown
	Now     time.Time
	Within  time.Duration // a value that expires so soon has a problem
}

// Audit says what is known of a value.
func (a *Auditor) Audit(v Value) Audit {
	r := Audit{File: v.File, Line: v.Line, Name: v.Name, Format: v.Format, Problems: []string{}}
	problem := func(format string, args ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) }
	if err := secrets.CheckName(v.Name); err != nil {
		problem("%v", err)
	}
	if v.Format != envelope {
		a.legacy(v, &r, problem)
		return r
	}
	var expires time.Time
	if v.Entry != nil {
		r.KeyID, expires = v.Entry.KeyID, v.Entry.Expires
		r.dates(v.Entry.Issued, expires, a.Now)
	}
	if len(a.Private) > 0 {
		s, err := secrets.Open(v.Text, secrets.Identities(a.Private))
		if err != nil {
			problem("%v", err)
		} else {
			if v.Entry != nil && (s.KeyID != v.Entry.KeyID || s.Expires.UTC().Format(time.DateOnly) != r.Expires || s.Issued.UTC().Format(time.DateOnly) != r.Issued) {
				problem("the file says something else than what is sealed")
			}
			if s.Name != v.Name {
				problem("sealed as %s: no node hands it out under this name", s.Name)
			}
			r.Opened, r.KeyID, expires = true, s.KeyID, s.Expires
			r.dates(s.Issued, s.Expires, a.Now)
		}
	}
	switch {
	case expires.IsZero():
	case !a.Now.Before(expires):
		problem("expired")
	case expires.Sub(a.Now) < a.Within:
		problem("ends in %d days", int(expires.Sub(a.Now)/(24*time.Hour)))
	}
	if a.Current != "" && r.KeyID != "" && r.KeyID != a.Current {
		problem("sealed for other keys than %s: rekey", a.Current)
	}
	return r
}

// legacy adds what is known of a value in an old format.
func (a *Auditor) legacy(v Value, r *Audit, problem func(string, ...any)) {
	problem("bound to no pipeline, ends never: migrate")
	if len(a.Private) == 0 {
		return
	}
	opened, err := a.OpenLegacy(v.Text)
	if err != nil {
		problem("%v", err)
		return
	}
	r.Opened, r.Format = true, string(opened.Format)
	if opened.Format != legacy.V0 {
		r.Passphrase = &opened.Passphrase
	}
	if opened.Weak() {
		problem("passphrase of %d bytes: count the value as public and replace it", opened.Passphrase)
	}
}

func (r *Audit) dates(issued, expires, now time.Time) {
	if !issued.IsZero() {
		days := int(now.Sub(issued) / (24 * time.Hour))
		r.Issued, r.AgeDays = issued.UTC().Format(time.DateOnly), &days
	}
	if !expires.IsZero() {
		r.Expires = expires.UTC().Format(time.DateOnly)
	}
}

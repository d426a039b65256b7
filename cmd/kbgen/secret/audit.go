package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/legacy"
)

// auditCmd lists what is sealed, for whom, since when and until when.
type auditCmd struct {
	Files         []string `arg:"" optional:"" name:"file"`
	Key           []string `placeholder:"FILE"`
	RepositoryKey string   `name:"repository-key" placeholder:"FILE"`
	Recipients    string   `default:".buildkite/kbgen/recipients.txt" placeholder:"FILE"`
	Within        int      `default:"30" placeholder:"DAYS"`
	JSON          bool

	now clock
}

// audited is one value as --json prints it.
type audited struct {
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

// usualFiles are looked at when none is named.
var usualFiles = []string{secrets.StoreFile, ".buildkite/*.yml", ".buildkite/*.yaml"}

func (c *auditCmd) Run(_ context.Context, env *cli.Env) error {
	files := c.Files
	if len(files) == 0 {
		for _, pattern := range usualFiles {
			found, _ := filepath.Glob(pattern) // the patterns are well formed
			for _, f := range found {
				if !slices.Contains(files, f) {
					files = append(files, f)
				}
			}
		}
		if files == nil {
			return cli.WithHint(cli.Usagef("got no file, and there is none in .buildkite"), "kbgen secret audit FILE...")
		}
	}
	a := auditor{now: c.now().UTC(), within: time.Duration(c.Within) * 24 * time.Hour}
	var err error
	if a.keys, err = privateKeys(env, c.Key); err != nil {
		return err
	}
	if a.repository, err = repositoryKey(env, a.keys, c.RepositoryKey); err != nil {
		return err
	}
	if a.current, err = currentKeyID(c.Recipients, a.now); err != nil {
		return err
	}
	all, problems := []audited{}, 0
	for _, file := range files {
		texts, err := scan(env, file)
		if err != nil {
			return err
		}
		for _, t := range texts {
			r := a.audit(t)
			problems += len(r.Problems)
			all = append(all, r)
		}
	}
	if err := c.print(env.Stdout, all, len(files)); err != nil {
		return err
	}
	if problems > 0 {
		return &cli.ExitError{Status: exitFindings}
	}
	return nil
}

// currentKeyID is the recipients' of today, "" where no file says so.
func currentKeyID(file string, now time.Time) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", &cli.UsageError{Err: err}
	}
	rs, err := secrets.ParseRecipients(string(text))
	if err == nil {
		rs, err = rs.Current(now)
	}
	if err != nil {
		return "", cli.Usagef("%s: %w", file, err)
	}
	return rs.KeyID(), nil
}

type auditor struct {
	keys       []*secrets.PrivateKey
	repository []byte
	current    string
	now        time.Time
	within     time.Duration
}

func (a *auditor) audit(t sealedText) audited {
	r := audited{File: t.file, Line: t.line, Name: t.name, Format: t.format, Problems: []string{}}
	problem := func(format string, args ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) }
	if err := secrets.CheckName(t.name); err != nil {
		problem("%v", err)
	}
	if t.format != "kbsec1" {
		a.old(t, &r, problem)
		return r
	}
	var expires time.Time
	if t.entry != nil {
		r.KeyID, expires = t.entry.KeyID, t.entry.Expires
		r.dates(t.entry.Issued, expires, a.now)
	}
	if len(a.keys) > 0 {
		s, err := secrets.Open(t.text, secrets.Identities(a.keys))
		if err != nil {
			problem("%v", err)
		} else {
			if t.entry != nil && (s.KeyID != t.entry.KeyID || s.Expires.UTC().Format(time.DateOnly) != r.Expires || s.Issued.UTC().Format(time.DateOnly) != r.Issued) {
				problem("the file says something else than what is sealed")
			}
			if s.Name != t.name {
				problem("sealed as %s: no node hands it out under this name", s.Name)
			}
			r.Opened, r.KeyID, expires = true, s.KeyID, s.Expires
			r.dates(s.Issued, s.Expires, a.now)
		}
	}
	switch {
	case expires.IsZero():
	case !a.now.Before(expires):
		problem("expired")
	case expires.Sub(a.now) < a.within:
		problem("ends in %d days", int(expires.Sub(a.now)/(24*time.Hour)))
	}
	if a.current != "" && r.KeyID != "" && r.KeyID != a.current {
		problem("sealed for other keys than %s: rekey", a.current)
	}
	return r
}

// old is what can be said of a value in an old format: that it is one.
func (a *auditor) old(t sealedText, r *audited, problem func(string, ...any)) {
	problem("bound to no pipeline, ends never: migrate")
	if len(a.keys) == 0 {
		return
	}
	v, err := openLegacy(a.keys, a.repository, t.text)
	if err != nil {
		problem("%v", err)
		return
	}
	r.Opened, r.Format = true, string(v.Format)
	if v.Format != legacy.V0 {
		r.Passphrase = &v.Passphrase
	}
	if v.Weak() {
		problem("passphrase of %d bytes: count the value as public and replace it", v.Passphrase)
	}
}

func (r *audited) dates(issued, expires, now time.Time) {
	if !issued.IsZero() {
		days := int(now.Sub(issued) / (24 * time.Hour))
		r.Issued, r.AgeDays = issued.UTC().Format(time.DateOnly), &days
	}
	if !expires.IsZero() {
		r.Expires = expires.UTC().Format(time.DateOnly)
	}
}

func (c *auditCmd) print(w io.Writer, all []audited, files int) error {
	if c.JSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	problems := 0
	if len(all) > 0 {
		fmt.Fprintln(table, "NAME\tFORMAT\tSEALED FOR\tAGE\tENDS\tPLACE\tPROBLEMS")
	}
	for _, r := range all {
		format, age := r.Format, "-"
		if r.Passphrase != nil {
			format += fmt.Sprintf(" (%d bytes)", *r.Passphrase)
		}
		if r.AgeDays != nil {
			age = fmt.Sprintf("%d d", *r.AgeDays)
		}
		said := strings.Join(r.Problems, "; ")
		if said == "" {
			said = "none"
		} else {
			problems++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s:%d\t%s\n", r.Name, format, orDash(r.KeyID), age, orDash(r.Expires), r.File, r.Line, said)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d secrets in %d files, %d with problems\n", len(all), files, problems)
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

package secret

import (
	"cmp"
	"context"
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
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/pipeline"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/inventory"
)

// auditCmd lists what is sealed, for whom, since when and until when.
type auditCmd struct {
	Files         []string `arg:"" optional:"" name:"file"`
	Key           []string `placeholder:"FILE" help:"a private key, lines AGE-SECRET-KEY-… or RSA in PEM for old formats; may be repeated"`
	RepositoryKey string   `name:"repository-key" placeholder:"FILE" help:"cryptic's repo_key.…, for its variables"`
	Recipients    string   `default:".buildkite/kbgen/recipients.txt" placeholder:"FILE" help:"the file of keys that are in use"`
	Within        int      `default:"30" placeholder:"DAYS" help:"report what expires within so many days"`
	JSON          bool     `help:"print an array (kbgen schema audit)"`

	now func() time.Time
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
	a := inventory.Auditor{Now: c.now().UTC(), Within: time.Duration(c.Within) * 24 * time.Hour}
	var err error
	if a.Keys, err = readKeys(env, c.Key, c.RepositoryKey); err != nil {
		return err
	}
	if a.Current, err = currentKeyID(c.Recipients, a.Now); err != nil {
		return err
	}
	all, problems := []inventory.Audit{}, 0
	for _, file := range files {
		values, err := scan(env, file)
		if err != nil {
			return err
		}
		for _, v := range values {
			r := a.Audit(v)
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
	rs, err := parseRecipients(file, text, now)
	return rs.KeyID(), err
}

func (c *auditCmd) print(w io.Writer, all []inventory.Audit, files int) error {
	if c.JSON {
		return cli.PrintJSON(w, all)
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
		if len(r.Problems) > 0 {
			problems++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s:%d\t%s\n", r.Name, format, cmp.Or(r.KeyID, "-"), age, cmp.Or(r.Expires, "-"), r.File, r.Line, cmp.Or(strings.Join(r.Problems, "; "), "none"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d secrets in %d files, %d with problems\n", len(all), files, problems)
	return err
}

// secretRules begin the rules that are about secrets.
const secretRules = "KB7"

// lintCmd applies those rules of kbgen check that are about secrets.
type lintCmd struct {
	Files []string `arg:"" name:"file"`
}

func (c *lintCmd) Run(_ context.Context, env *cli.Env) error {
	failed := false
	for _, file := range c.Files {
		text, err := readFile(env, file)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		for _, f := range pipeline.Check(text, pipeline.Options{Strict: true}) {
			if !strings.HasPrefix(f.Rule, secretRules) && !(f.Rule == "KB002" || f.Rule == "KB001") {
				continue
			}
			f.File = file
			f.Line, f.Column = max(1, f.Line), max(1, f.Column)
			failed = failed || f.Severity >= schema.SeverityWarning
			if _, err := fmt.Fprintln(env.Stdout, &f); err != nil {
				return err
			}
		}
	}
	if failed {
		return &cli.ExitError{Status: exitFindings}
	}
	return nil
}

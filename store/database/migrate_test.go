package database

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/store/database/migrations"
)

// breaking finds what a program of the version before cannot work with: columns that
// are gone or refuse what it writes.
var (
	breaking     = regexp.MustCompile(`(?i)\b(DROP (TABLE|COLUMN)|RENAME|ALTER COLUMN|ADD CONSTRAINT|CREATE UNIQUE INDEX)\b`)
	addsRequired = regexp.MustCompile(`(?i)\bADD COLUMN\b.*\bNOT NULL\b`)
	comments     = regexp.MustCompile(`--[^\n]*`)
	blanks       = regexp.MustCompile(`\s+`)
)

// breaks returns the statements of a migration with which a program of the version
// before cannot go on.
func breaks(migration string) (found []string) {
	for statement := range strings.SplitSeq(comments.ReplaceAllString(migration, ""), ";") {
		statement = strings.TrimSpace(blanks.ReplaceAllString(statement, " "))
		required := addsRequired.MatchString(statement) && !strings.Contains(strings.ToUpper(statement), " DEFAULT ")
		if required || breaking.MatchString(statement) {
			found = append(found, statement)
		}
	}
	return found
}

// An instance goes on while a newer program migrates its database, so migrations only
// add: see docs/kbserve.md.
func TestMigrationsOnlyAdd(t *testing.T) {
	for statement, want := range map[string]bool{
		"ALTER TABLE kbserve.board ADD COLUMN a text NOT NULL": true, "ALTER TABLE kbserve.board ADD COLUMN a text NOT NULL DEFAULT ''": false,
		"ALTER TABLE kbserve.board ADD COLUMN a text": false, "ALTER TABLE kbserve.board\n  rename COLUMN a TO b": true,
		"DROP TABLE kbserve.board": true, "-- DROP TABLE kbserve.board\nCREATE INDEX a ON b (c)": false, "ALTER TABLE a ALTER COLUMN b SET NOT NULL": true,
	} {
		if got := len(breaks(statement)) > 0; got != want {
			t.Errorf("breaks(%q) = %v, want %v", statement, got, want)
		}
	}
	files, err := fs.Glob(migrations.FS, "*/*.sql")
	if err != nil || len(files) < 18 {
		t.Fatalf("got %d migrations, %v; want at least 18", len(files), err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(migrations.FS, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range breaks(string(text)) {
			t.Errorf("%s: %q breaks instances that run while it is applied: add what is new in one release, remove what is old in a later one", file, statement)
		}
	}
}

// Kbgen-secret seals values for the vendors' nodes, opens and renews them. It
// is what `kbgen secret` runs: a program of its own, since its cryptography
// would cost every start of kbgen more than kbgen's work.
package main

import (
	"os"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

// exitFindings is the exit status of an audit or a lint that found something,
// as of kbgen check.
const exitFindings = 3

func main() { os.Exit(cli.Main(program(time.Now))) }

// A clock tells the time; tests have their own.
type clock func() time.Time

type grammar struct {
	Get     getCmd     `cmd:""`
	Hook    hookCmd    `cmd:""`
	Keygen  keygenCmd  `cmd:""`
	Encrypt encryptCmd `cmd:""`
	Decrypt decryptCmd `cmd:""`
	Rekey   rekeyCmd   `cmd:""`
	Audit   auditCmd   `cmd:""`
	Migrate migrateCmd `cmd:""`
	Lint    lintCmd    `cmd:""`
}

func program(now clock) cli.Program {
	g := &grammar{}
	for _, c := range []*clock{&g.Keygen.now, &g.Encrypt.now, &g.Decrypt.now, &g.Rekey.now, &g.Audit.now, &g.Migrate.now} {
		*c = now
	}
	return cli.Program{Name: "kbgen-secret", Grammar: g, Help: help, Values: map[string]func() []string{
		"--kind": func() []string { return []string{"hybrid", "x25519"} },
	}}
}

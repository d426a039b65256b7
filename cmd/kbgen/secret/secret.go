// Package secret is kbgen secret: it seals values for the vendors' nodes, opens
// and renews them.
package secret

import "time"

// exitFindings is the exit status of an audit or a lint that found something,
// as of kbgen check.
const exitFindings = 3

// A clock tells the time; tests have their own.
type clock func() time.Time

// Commands is the grammar of kbgen secret.
type Commands struct {
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

// New returns the commands, for which it is as late as now says.
func New(now func() time.Time) Commands {
	var c Commands
	for _, clock := range []*clock{&c.Keygen.now, &c.Encrypt.now, &c.Decrypt.now, &c.Rekey.now, &c.Audit.now, &c.Migrate.now} {
		*clock = now
	}
	return c
}

package secret

import "github.com/gpu-mode/kbgen/cmd/internal/cli"

// Help holds the pages, by the name of the command in kbgen.
var Help = cli.Pages(map[string]cli.Page{
	"secret": {Text: `kbgen secret seals values for the vendors' nodes. What it seals can lie in a
public repository: only a node can open it, for the steps that were named.

usage:
  kbgen secret keygen --out FILE    a node's key; prints the public one
  kbgen secret encrypt NAME         seal a value; prints what to paste
  kbgen secret decrypt [FILE]       open one, with the private key
  kbgen secret rekey [STORE]        seal for the keys of today
  kbgen secret audit [FILE...]      what is sealed, for whom, until when
  kbgen secret migrate FILE...      old formats into a store
  kbgen secret lint FILE...         what kbgen check says about secrets
  kbgen secret get NAME             in a step: ask the node for a value
  kbgen secret hook NAME            agent hooks for SECRET_* in the old formats
  kbgen secret COMMAND --help

A value comes from a terminal without being shown, from standard input, or from
a file: never from an argument. No message holds any of it.

exit status: 0 done, 1 failed, 2 wrong usage, 3 an audit or a lint found
something

example:
  kbgen secret encrypt CODECOV_TOKEN --org $ORG --pipeline $PIPELINE \
    --store .buildkite/secrets.kb.yaml
`},
	"secret get": {
		Usage: "kbgen secret get NAME [options] [-- COMMAND...]",
		Text: `In a step: takes the envelope from the variable NAME_KBSEC, else from the store,
and asks the node's broker, kbnode secretd, to open it. Who the step is, the
broker learns from a token that Buildkite signs. The agent is told first what
must not stand in the log: the value, its lines, its base64 and URL forms.

Prints the value, byte for byte. With a COMMAND it runs that instead, with the
value in a file in memory that NAME_FILE names. Programs of the same user can
read the file while kbgen runs. It is gone when kbgen ends, even if killed.`,
		More:    "exit status: 0 done, 1 refused or failed, 2 wrong usage; COMMAND's own",
		Example: `kbgen secret get NPM_TOKEN -- sh -c 'npm-publish --token-file "$NPM_TOKEN_FILE"'`,
	},
	"secret hook": {
		Usage: "kbgen secret hook environment|pre-command --allow UUID=REPOSITORY...",
		Text: `Prints an agent hook for nodes whose pipelines carry SECRET_* in the old formats.

  environment          exports them to jobs of pipelines that are allowed, whose
                       repository is the one named and that build no pull
                       request; in other jobs it takes them away. The agent
                       keeps them out of the log, line by line
  pre-command          takes the agent's job API away from untrusted steps and
                       from steps that have such secrets: whoever holds it reads
                       the whole environment and runs code in the next hook`,
		More:    "The broker must allow the pipelines, too (old: in its config).",
		Example: "kbgen secret hook environment --allow $ID=https://github.com/a/b > environment",
	},
	"secret keygen": {
		Usage: `kbgen secret keygen --out FILE [options]
kbgen secret keygen --existing FILE [--name NAME]`,
		Text: `Makes a private key, readable by its owner alone, and prints the line for
.buildkite/kbgen/recipients.txt. A file that is there is never replaced.`,
		More: `example, as root on a node:
  kbgen secret keygen --name lab-2026 --out /etc/kbnode/secret.key`,
	},
	"secret encrypt": {
		Usage:   "kbgen secret encrypt NAME [options]",
		Text:    "Seals a value. Prints a snippet for a step, or puts it into a store.",
		Example: `printf %s "$TOKEN" | kbgen secret encrypt A_TOKEN --org $ORG --pipeline $ID`,
	},
	"secret decrypt": {
		Usage: "kbgen secret decrypt [FILE] --key FILE [options]",
		Text: `Opens one value and prints it, byte for byte. FILE holds the sealed text, in
kbsec1 or an old format, or is a store (*.kb.yaml); default: standard input.`,
		Example: "kbgen secret decrypt .buildkite/secrets.kb.yaml --name NPM_TOKEN --key node.key",
	},
	"secret rekey": {
		Usage: "kbgen secret rekey [STORE] --key FILE [options]",
		Text: `Seals the values of a store (default .buildkite/secrets.kb.yaml) for the
recipients that are in use today. Bindings and days stay. With one value that
does not open, nothing is written.`,
		More: `Whoever could read the old text still can. When a key was lost, replace the
values themselves.`,
		Example: "kbgen secret rekey --key old.key",
	},
	"secret audit": {
		Usage: "kbgen secret audit [FILE...] [options]",
		Text: `Lists sealed values of stores and pipelines (default: those in .buildkite):
format, for whom, age, end, and what is wrong with them. Without a key it
believes what the store says.`,
		More:    "exit status: 0 no problems, 2 wrong usage, 3 problems",
		Example: "kbgen secret audit --key node.key",
	},
	"secret migrate": {
		Usage: "kbgen secret migrate FILE... --key FILE [options]",
		Text: `Puts the values that pipelines hold in the old formats (SECRET_*,
CRYPTIC_ADHOC_SECRET_*, variables of the plugin cryptic) into a store, sealed
anew. The pipelines stay as they are. All of them, or none.`,
		Example: `kbgen secret migrate .buildkite/pipeline.yml --key secrets.private.key \
  --org $ORG --pipeline $PIPELINE`,
	},
	"secret lint": {Text: `usage: kbgen secret lint FILE...

Applies the rules of kbgen check that are about secrets, strictly.

exit status: 0 nothing found, 2 wrong usage, 3 something found

example:
  kbgen secret lint .buildkite/pipeline.yml
`},
})

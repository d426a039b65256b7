package main

import "github.com/gpu-mode/kbgen/cmd/internal/cli"

var help = cli.Pages(map[string]cli.Page{
	"": {Text: `kbserve is the backend of a kernel competition: submissions in, ranked scores
out.

usage:
  kbserve serve                take submissions, evaluate, rank, show
  kbserve unit                 what systemd or docker compose starts it by
  kbserve db migrate | check | rebuild | backup | convert | export
  kbserve board create | set | sync | list | show | history | rejudge | delete
  kbserve limits show | set
  kbserve invite create | list | revoke
  kbserve user create | list | login | logout | ban | unban
  kbserve submission list | show | delete | verify | accept | reject | hacked
                     | unhack
  kbserve about | accepting | stats | doctor | selftest
  kbserve simulate             how long users would wait, and what is too small
  kbserve completion SHELL     for bash, zsh or fish
  kbserve man                  all help pages, for man(1)
  kbserve COMMAND --help | kbserve --version

Commands that use the database take --database URL (KBSERVE_DATABASE) and
--config FILE (KBSERVE_CONFIG).

exit status: 0 done, 1 failed, 2 wrong usage
`},
	"serve": {
		Usage: "kbserve serve [flag ...]",
		Text: `answers popcorn-cli, /api/v1, pages, /webhooks/buildkite, /health and /ready.
SIGTERM ends it, builds go on; SIGHUP hands over to a new process.`,
		More: `variables only: BUILDKITE_API_TOKEN, KBSERVE_ADMIN_TOKEN, KBSERVE_WEBHOOK_TOKEN,
  KBSERVE_ANNOUNCE_URL, KBSERVE_HOOK_URL, KBSERVE_HOOK_SECRET,
  KBSERVE_{GITHUB,DISCORD}_CLIENT_{ID,SECRET}

example: kbserve serve --config /etc/kbserve/kbserve.env`,
	},
	"unit": {
		Usage: "kbserve unit [--socket | --compose | --dockerfile] [flag ...]",
		Text: `prints kbserve.service, or kbserve.socket, which keeps the listener over
restarts, or a compose file with PostgreSQL, or the recipe of its image; both
say first how they are used. The unit keeps its SQLite file, if it has one,
below /var/lib/kbserve: KBSERVE_DATABASE=sqlite:kbserve.db.`,
		Example: `kbserve unit >/etc/systemd/system/kbserve.service
kbserve unit --socket >/etc/systemd/system/kbserve.socket
systemctl daemon-reload && systemctl enable --now kbserve.socket kbserve`,
	},
	"db": {
		Usage: `kbserve db migrate            make the tables, or bring them up to date
kbserve db check              compare the standings with the runs
kbserve db rebuild            make the standings from the runs
kbserve db backup FILE        copy a SQLite file that is in use
kbserve db convert TO         copy a SQLite file into PostgreSQL
kbserve db export [--board NAME] [--code] [--format FORMAT] [--out FILE]`,
		Text: `migrate works on an empty database and on one that Kernelbot's own migrations
made: its tables keep rows and columns, ours stand beside them. Run rebuild
afterwards there. check prints the differences and exits with 1 when there are
any; a server of Kernelbot's that writes to the same database makes some.

convert wants TO migrated and empty; ids stay. Nobody may write meanwhile.

export prints JSON lines, a submission each: runs, verdicts and why something
does not rank; of a secret run only whether it passed. Never a seed or a CLI id.

{options export}`,
		Example: "kbserve db migrate && kbserve db check",
	},
	"board": {
		Usage: `kbserve board create NAME TASK --deadline TIME [flag ...]
kbserve board set NAME [flag ...]
kbserve board sync FILE... [--force] [--dry-run]
kbserve board list [--json]
kbserve board show NAME      who ranks, see kbserve board show --help
kbserve board history NAME
kbserve board rejudge NAME [flag ...]
kbserve board delete NAME [--force]`,
		Text: `create makes one board, set changes one, and rejudge evaluates submissions again;
each has its own --help. history prints how the settings changed, the latest first.

sync makes or changes the boards of Kernelbot's competition files
(problems/*.yaml), all of them or none. What a file does not mention stays as it
is. Files, config, lang and benchmarks of a board that has submissions stay
as they are without --force.

sync:
{options sync}

delete:
{options delete}`,
		Example: "kbserve board sync problems/*.yaml --dry-run",
	},
	"board create": {
		Usage:   "kbserve board create NAME TASK --deadline TIME [flag ...]",
		Text:    "makes one board from a folder with a task.yml.",
		Example: "kbserve board create add tasks/add --deadline 2026-12-31 --gpu H100_BK",
	},
	"board set": {
		Usage: "kbserve board set NAME [flag ...]",
		Text: `changes a board's settings. What no flag names stays as it is. The ranking follows
at once, and the board's history says what changed and why.`,
		Example: "kbserve board set add --deadline 2027-01-15 --reason 'one vendor was down'",
	},
	"board rejudge": {
		Usage: "kbserve board rejudge NAME [flag ...] | kbserve board rejudge NAME --report",
		Text: `evaluates submissions again, as after a change of the task: those that rank,
unless --all or --status selects others. The new results replace the earlier
ones, which count until then. Submissions marked as hacked are left out.`,
		Example: "kbserve board rejudge add --status failed --dry-run",
	},
	"board show": {
		Usage: "kbserve board show NAME [--gpu NAME] [--limit N] [--json]",
		Text: `prints who ranks on a board: rank (= where it is shared), user, score, when, and the
submission. The same rule decides here as in the API and on the pages.`,
		Example: "kbserve board show vectoradd --gpu H100_BK",
	},
	"limits": {
		Usage: `kbserve limits show BOARD [--json]
kbserve limits set BOARD [LIMIT...]`,
		Text: `A limit bounds one user's submissions per hour. set puts these limits in the
place of all that the board has, and none at all without any:

  leaderboard=10       ranked submissions on all GPU types together
  test=60              those of every other mode
  test@B200_BK=5       on one GPU type
  leaderboard=0        none are taken

{options show}`,
		Example: "kbserve limits set add leaderboard=10 test=60 test@B200_BK=5",
	},
	"invite": {
		Usage: `kbserve invite create BOARD... [-n N]
kbserve invite list [BOARD] [--json]
kbserve invite revoke CODE`,
		Text: `create prints codes, one a line; each lets the one user who claims it onto all
of the boards. Whoever claimed a code that is revoked loses what it gave; what
they have submitted stays.

create:
{options create}

list:
{options list}`,
		Example: "kbserve invite create finals -n 20",
	},
	"user": {
		Usage: `kbserve user create ID [--name NAME] [--provider NAME]
kbserve user list [--json]
kbserve user login ID [--url URL]
kbserve user logout ID
kbserve user ban ID | kbserve user unban ID`,
		Text: `create prints a CLI id for the user (a decimal number, Discord's or GitHub's),
once: it goes into ~/.popcorn.yaml, and the database keeps its hash. Again for
the same user, it replaces the CLI id. With --provider it makes no CLI id: it
ties the user to the account with this id at github or discord, which then logs
in as the user. An account at another provider is refused. ban stops a user from
submitting and ends their sessions; their submissions keep their ranks.

login prints a link that logs one browser in as the user, once, within ten
minutes: for admins, and where there is no log-in through GitHub or Discord.
logout ends all sessions and log-in links of a user; the CLI id stays valid.

create:
{options create}

login:
{options login}

list:
{options list}`,
		Example: "kbserve user create 184017 --name ann",
	},
	"submission": {
		Usage: `kbserve submission list [flag ...] [--json]
kbserve submission show ID [--code] [--json]
kbserve submission delete ID... | --user ID --board NAME
kbserve submission verify ID [--gpu NAME]
kbserve submission accept ID... | --all
kbserve submission reject ID --why TEXT
kbserve submission hacked ID --why TEXT
kbserve submission unhack ID`,
		Text: `For admins: list and show see everything. delete removes submissions and their
runs; hacked keeps one and takes it out of the ranking, and unhack undoes that.
The user's next best ranks in its place. verify evaluates one once more; the
results count beside the earlier ones. accept and reject decide about submissions
that wait for the organizers' check (KBSERVE_HOOK_URL).

list, the newest first:
{options list}

show:
{options show}

delete:
{options delete}

verify:
{options verify}

accept:
{options accept}

reject:
{options reject}

hacked:
{options hacked}`,
		Example: "kbserve submission list --board add --status failed",
	},
	"about": {
		Usage: "kbserve about [FILE]",
		Text: `prints the text about the competition, or replaces it with a file (- is standard
input). The text is Markdown: what the competition is, its rules and dates. The
start page shows its beginning, /about all of it.`,
		Example: "kbserve about rules.md",
	},
	"accepting": {
		Usage: "kbserve accepting [yes | no]",
		Text: `prints whether the servers on this database accept submissions; with a word, it
changes that for users who are not admins. Accepted submissions still run.`,
		Example: "kbserve accepting no",
	},
	"stats": {
		Usage: "kbserve stats [--json]",
		Text: `prints numbers of each board: users who have submitted, submissions in all, of
the last hour and day, by status and by mode, and evaluations that have not
finished.`,
		Example: "kbserve stats",
	},
	"doctor": {
		Usage: "kbserve doctor [--age TIME] [--json]",
		Text: `says what is stuck or wrong, and what to do about each; it changes nothing. It
exits with 1 when it finds something:

  waiting         planned, and nobody has taken it
  abandoned       begun, and whoever held it is gone
  slow            begun, held, and not over
  forgotten       not done, and nothing of it is planned
  past deadline   a board that is over and has evaluations that are not
  standings       they are not what the runs say, see kbserve db check
  hook            a submission waits for the organizers' check, or the hook has
                  not taken a result
  silence         runs finish, and Buildkite's events do not come any more
  machines        a GPU type of an open board that no agent serves; asked with
                  BUILDKITE_API_TOKEN (scope read_agents)
  database        it does not answer
  buildkite       its API does not answer`,
		Example: "kbserve doctor --age 2h",
	},
	"selftest": {
		Usage: `kbserve selftest --gpu NAME [--cleanup] [flag ...]
kbserve selftest --remove BOARD`,
		Text: `sends one submission through everything, as popcorn-cli would: a closed board of
its own, a user and an invite; then the server, the build and the evaluation of
an example; then it looks at the rows that must be there, and at the rank. It
wants a server that runs on the same database, and agents for the GPU type.`,
		Example: "kbserve selftest --gpu H100_BK --cleanup",
	},
	"simulate": {
		Usage: "kbserve simulate --gpu NAME=N [--gpu NAME=N ...] [flag ...]",
		Text: `runs a competition on a virtual clock, with the queue and the rate limiter that
serve has, and no database or network. It prints how long runs wait, how busy
the GPUs are, what the busiest hour needs of Buildkite's limits, and what would
have to change so that nothing holds runs back.

With --board, the submissions are those of a board, and the flags from --users
to --spread except --gpu do not count. Only then it reads the database.`,
		Example: "kbserve simulate --users 1000 --gpu H100=40 --hours 24 --rush 8",
	},
})

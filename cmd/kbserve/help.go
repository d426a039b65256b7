package main

const databaseHelp = `
  --database URL       KBSERVE_DATABASE; sqlite:FILE or postgres://USER@HOST/DB
                       (default sqlite:kbserve.db). A password belongs into the
                       variable or PGPASSFILE: others see command lines
  --config FILE        KBSERVE_CONFIG; lines NAME=value, below the environment
`

var help = map[string]string{
	"": `kbserve is the backend of a kernel competition: submissions in, ranked scores
out.

usage:
  kbserve serve                take submissions, evaluate, rank, show
  kbserve unit                 what systemd or docker compose starts it by
  kbserve db migrate | check | rebuild | backup | convert | export
  kbserve board create | sync | list | show | close | delete
  kbserve limits show | set
  kbserve invite create | list | revoke
  kbserve user create | list | login | ban | unban
  kbserve submission list | show | delete | hacked
  kbserve stats | doctor | selftest
  kbserve completion SHELL     for bash, zsh or fish
  kbserve man                  all help pages, for man(1)
  kbserve COMMAND --help | kbserve --version
` + databaseHelp + `
exit status: 0 done, 1 failed, 2 wrong usage
`,
	"serve": `usage: kbserve serve [flag ...]

answers popcorn-cli, /api/v1, pages, /webhooks/buildkite, /health and /ready.
SIGTERM ends it, builds go on; SIGHUP hands over to a new process.

  --listen ADDRESS     KBSERVE_LISTEN (127.0.0.1:8080); repeat, or commas
  --metrics ADDRESS    KBSERVE_METRICS; Prometheus reads /metrics there
  --url URL            KBSERVE_URL, as clients reach it (that of --listen)
  --name TEXT          KBSERVE_NAME, of the competition
  --admin ID           KBSERVE_ADMINS, users who are admins
  --proxy NETWORK      KBSERVE_PROXIES, whose X-Forwarded-For counts
  --rate N             KBSERVE_RATE (10), requests a second of a client; 0: any
  --org, --pipeline    BUILDKITE_ORG (gpu-mode), BUILDKITE_PIPELINE (kernelbot)
  --branch, --commit   KBSERVE_BRANCH (main), KBSERVE_COMMIT (HEAD)
  --api URL            KBSERVE_API_URL (https://api.buildkite.com/)
  --seal FILE          KBSERVE_SEAL; seals payloads, as kblaunch submit --seal
  --room N             KBSERVE_ROOM (8), builds where machines are not known
  --lease, --listing-delay        KBSERVE_LEASE (30s), ..LISTING_DELAY (30s)
  --pid-file FILE      KBSERVE_PID_FILE, of the process that answers
  --queue-timeout, --run-timeout  KBSERVE_QUEUE_TIMEOUT (6h), ..RUN_TIMEOUT (1h)
  --migrate            KBSERVE_MIGRATE=true; updates the database first
  --log-format FORMAT  KBSERVE_LOG_FORMAT; text or json
variables only: BUILDKITE_API_TOKEN, KBSERVE_ADMIN_TOKEN, KBSERVE_WEBHOOK_TOKEN,
  KBSERVE_ANNOUNCE_URL, KBSERVE_{GITHUB,DISCORD}_CLIENT_{ID,SECRET}` + databaseHelp + `
example: kbserve serve --config /etc/kbserve/kbserve.env
`,
	"unit": `usage: kbserve unit [--socket | --compose | --dockerfile] [flag ...]

prints kbserve.service, or kbserve.socket, which keeps the listener over
restarts, or a compose file with PostgreSQL, or the recipe of its image; both
say first how they are used. The unit keeps its SQLite file, if it has one,
below /var/lib/kbserve: KBSERVE_DATABASE=sqlite:kbserve.db.

  --config FILE        lines NAME=value (default /etc/kbserve/kbserve.env)
  --listen ADDRESS     of the socket, or on the machine (default 127.0.0.1:8080)
  --program FILE       kbserve (default: this file)
  --image NAME         of the container (default kbserve:latest)
  --socket             the socket unit
  --compose            the compose file
  --dockerfile         the image's recipe

example:
  kbserve unit >/etc/systemd/system/kbserve.service
  kbserve unit --socket >/etc/systemd/system/kbserve.socket
  systemctl daemon-reload && systemctl enable --now kbserve.socket kbserve
`,
	"db": `usage: kbserve db migrate            make the tables, or bring them up to date
       kbserve db check              compare the standings with the runs
       kbserve db rebuild            make the standings from the runs
       kbserve db backup FILE        copy a SQLite file that is in use
       kbserve db convert TO         copy a SQLite file into PostgreSQL
       kbserve db export [--board NAME] [--code] [--format FORMAT] [--out FILE]

migrate works on an empty database and on one that Kernelbot's own migrations
made: its tables keep rows and columns, ours stand beside them. Run rebuild
afterwards there. check prints the differences and exits with 1 when there are
any; a server of Kernelbot's that writes to the same database makes some.

convert wants TO migrated and empty; ids stay. Nobody may write meanwhile.

export prints JSON lines, a submission each: runs, verdicts and why something
does not rank; of a secret run only whether it passed. Never a seed or a CLI id.

  --board NAME         of this board alone
  --code               with the submissions' text
  --format FORMAT      json, or parquet, which wants --out (default json)
  --out FILE           where to; it is there when all of it is
` + databaseHelp + `
example:
  kbserve db migrate && kbserve db check
`,
	"board": `usage: kbserve board create NAME TASK --deadline TIME [flag ...]
       kbserve board sync FILE... [--force] [--dry-run]
       kbserve board list [--json]
       kbserve board show NAME      who ranks, see kbserve board show --help
       kbserve board close NAME
       kbserve board delete NAME [--force]

create makes one board; kbserve board create --help says how. sync makes or
changes the boards of Kernelbot's competition files (problems/*.yaml), all of
them or none; files, config, lang and benchmarks of a board that has submissions
stay as they are without --force. close makes now the deadline.

sync:
  --force              change also what makes earlier results incomparable
  --dry-run            say what would change
delete:
  --force              with all its submissions
` + databaseHelp + `
example:
  kbserve board sync problems/*.yaml --dry-run
`,
	"board create": `usage: kbserve board create NAME TASK --deadline TIME [flag ...]

makes one board from a folder with a task.yml.

  --deadline TIME      2026-12-31, 2026-12-31T18:00 or with a zone; UTC without.
                       A date alone is its first minute
  --gpu NAME           a GPU type; repeat (default: the task's)
  --closed             for users with an invite
  --limit LIMIT        a user's submissions per hour, repeat: leaderboard=10,
                       test=60 (every other mode), test@B200_BK=5
  --harness isolated   only submissions that this harness judged rank
  --sandbox LEVEL      none, partial or full: the least that ranks
  --clear-timing       ambiguous timing does not rank
  --ties               overlapping intervals share a rank
  --show-code WHEN     when others see code: never, or after the deadline
                       (default after)
  --reuse              the same text again gets the result that is there
` + databaseHelp + `
example:
  kbserve board create add tasks/add --deadline 2026-12-31 --gpu H100_BK
`,
	"board show": `usage: kbserve board show NAME [--gpu NAME] [--limit N] [--json]

prints who ranks on a board: rank (= where it is shared), user, score, when, and the
submission. The same rule decides here as in the API and on the pages.

  --gpu NAME           on this GPU type alone
  --limit N            so many of each GPU type; 0 is all (default 20)
  --json               a list, one object for each GPU type
` + databaseHelp + `
example:
  kbserve board show vectoradd --gpu H100_BK
`,
	"limits": `usage: kbserve limits show BOARD [--json]
       kbserve limits set BOARD [LIMIT...]

A limit bounds one user's submissions per hour. set puts these limits in the
place of all that the board has, and none at all without any:

  leaderboard=10       ranked submissions on all GPU types together
  test=60              those of every other mode
  test@B200_BK=5       on one GPU type
  leaderboard=0        none are taken
` + databaseHelp + `
example:
  kbserve limits set add leaderboard=10 test=60 test@B200_BK=5
`,
	"invite": `usage: kbserve invite create BOARD... [-n N]
       kbserve invite list [BOARD] [--json]
       kbserve invite revoke CODE

create prints codes, one a line; each lets the one user who claims it onto all
of the boards. Whoever claimed a code that is revoked loses what it gave; what
they have submitted stays.

  -n N, --number N     how many codes (default 1)
` + databaseHelp + `
example:
  kbserve invite create finals -n 20
`,
	"user": `usage: kbserve user create ID [--name NAME]
       kbserve user list [--json]
       kbserve user login ID [--url URL]
       kbserve user ban ID | kbserve user unban ID

create prints a CLI id for the user (a decimal number, Discord's or GitHub's),
once: it goes into ~/.popcorn.yaml, and the database keeps its hash. Again for
the same user, it replaces the CLI id. Whoever is banned submits nothing more;
what they have keeps its rank.

login prints a link that logs one browser in as the user, once, within ten
minutes: for admins, and where there is no log-in through GitHub or Discord.

  --url URL            KBSERVE_URL, as browsers reach the server
                       (default http://127.0.0.1:8080)
` + databaseHelp + `
example:
  kbserve user create 184017 --name ann
`,
	"submission": `usage: kbserve submission list [flag ...] [--json]
       kbserve submission show ID [--code] [--json]
       kbserve submission delete ID
       kbserve submission hacked ID --why TEXT

For admins: list and show see everything. delete removes a submission and its
runs; hacked keeps it and takes it out of the ranking. The user's next best
ranks in its place.

list, the newest first:
  --user ID            of one user
  --board NAME, --gpu NAME
  --status STATUS      pending, running, succeeded, failed, timed_out or hacked
  --before ID          older than this one
  --limit N            at most so many (default 50)
show:
  --code               its text, and nothing else without --json
hacked:
  --why TEXT           what its owner is told
` + databaseHelp + `
example:
  kbserve submission list --board add --status failed
`,
	"stats": `usage: kbserve stats [--json]

prints numbers of each board: users who have submitted, submissions in all, of
the last hour and day, by status and by mode, and evaluations that have not
finished.
` + databaseHelp + `
example:
  kbserve stats
`,
	"doctor": `usage: kbserve doctor [--age TIME] [--json]

says what is stuck or wrong, and what to do about each; it changes nothing. It
exits with 1 when it finds something:

  waiting         planned, and nobody has taken it
  abandoned       begun, and whoever held it is gone
  slow            begun, held, and not over
  forgotten       not done, and nothing of it is planned
  past deadline   a board that is over and has evaluations that are not
  standings       they are not what the runs say, see kbserve db check
  silence         runs finish, and Buildkite's events do not come any more
  machines        a GPU type of an open board that no agent serves; asked with
                  BUILDKITE_API_TOKEN (scope read_agents)

  --age TIME           how old such a submission is at least (default 30m)
  --org, --pipeline    BUILDKITE_ORG (gpu-mode), BUILDKITE_PIPELINE (kernelbot)
  --api URL            KBSERVE_API_URL (https://api.buildkite.com/)
` + databaseHelp + `
example:
  kbserve doctor --age 2h
`,
	"selftest": `usage: kbserve selftest --gpu NAME [--cleanup] [flag ...]
       kbserve selftest --remove BOARD

sends one submission through everything, as popcorn-cli would: a closed board of
its own, a user and an invite; then the server, the build and the evaluation of
an example; then it looks at the rows that must be there, and at the rank. It
wants a server that runs on the same database, and agents for the GPU type.

  --gpu NAME           the GPU type
  --cleanup            take away all rows that it made, also when it failed
  --remove BOARD       take away those of an earlier selftest
  --url URL            KBSERVE_URL; the server (default http://127.0.0.1:8080)
  --mode MODE          test, benchmark, profile or (the default) leaderboard
  --task NAME          an example, see kblaunch examples (default vectoradd_py)
  --timeout TIME       how long it may take (default 30m)
  --interval TIME      between two looks (default 2s)
` + databaseHelp + `
example:
  kbserve selftest --gpu H100_BK --cleanup
`,
}

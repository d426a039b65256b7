package pipeline

import "github.com/gpu-mode/kbgen/schema"

// Severities as the table of rules names them.
const (
	Off     = schema.SeverityOff
	Info    = schema.SeverityInfo
	Warning = schema.SeverityWarning
	Error   = schema.SeverityError
)

// A Rule is one thing that [Check] looks for. Numbers are never given to
// another rule.
type Rule struct {
	ID       string          `json:"id"`       // "KB102"
	Title    string          `json:"title"`    // "misspelt dependency"
	Severity schema.Severity `json:"severity"` // in any pipeline
	Strict   schema.Severity `json:"strict"`   // in what kbgen writes, see [Options]
	Text     string          `json:"text"`     // what is wanted, and what happens otherwise
}

// Rules lists every rule by number. The first digit is the subject: 0 document
// and format, 1 graph, 2 policy, 3 limits, 4 interpolation, 5 retries and soft
// failures, 6 plugins, 7 secrets, 8 the agent's own parser.
func Rules() []Rule { return rules[:] }

var rules = [...]Rule{
	{"KB001", "empty document", Error, Error,
		"Write steps into every document. The agent takes empty input, and input of comments only, for nothing to do: the upload succeeds and the build goes green."},
	{"KB002", "not YAML or JSON", Error, Error,
		"Write YAML or JSON. A line that kbgen left because it failed is reported here too, so that a broken render never passes for a pipeline."},
	{"KB003", "key twice", Warning, Error,
		"Write a key once per mapping. The last one wins and the others are lost without a word."},
	{"KB004", "broken alias", Error, Error,
		"An alias may not contain itself, and a document may not grow beyond a million nodes by its aliases."},
	{"KB005", "anchor, alias or merge", Off, Error,
		"kbgen writes everything out: two readers may understand a merge differently."},
	{"KB006", "null", Off, Error,
		"Write a value or leave the key out; wait is the only key whose value may be null. In the settings of a plugin a null makes the agent drop other settings at random."},
	{"KB007", "not a plain scalar", Off, Error,
		"kbgen writes text, numbers and booleans: no dates, no tags, no keys that are not text."},
	{"KB008", "useless allowance", Warning, Error,
		"A comment that allows a finding names rules that exist and says why: `# kbgen:allow KB205 the host has no other jobs`. It holds for its line, or when it stands alone for the line below, and on the first line of a step for the whole step."},

	{"KB010", "step without a type", Error, Error,
		"Give every step a command, plugins, wait, block, input, trigger or group. The agent passes others on with a warning and Buildkite refuses the upload."},
	{"KB011", "unknown key", Error, Error,
		"Use only keys that Buildkite knows. It refuses an upload with others in a step, and overlooks them elsewhere. A key at the top of the document that resembles no known one is taken for a place to keep anchors."},
	{"KB012", "wrong form", Error, Error,
		"Give every key a value of the form it takes."},
	{"KB013", "missing key", Error, Error,
		"Write the keys that the thing cannot do without."},
	{"KB014", "two in one", Warning, Error,
		"Write one type per step, and one of two names for the same thing. Of command and commands, the agent keeps one."},
	{"KB015", "nested step", Warning, Error,
		"Write `command: make`, not `command: {command: make}`. The agent takes the nested form only with a warning."},
	{"KB016", "second name of a key", Off, Error,
		"kbgen writes key, label, command, agents, artifact_paths and timeout_in_minutes, not their other names, and no type."},
	{"KB017", "text for a number or boolean", Off, Error,
		"kbgen writes numbers as numbers, booleans as booleans, agents as a mapping and plugins as a list of one-key mappings."},
	{"KB018", "key of a step", Error, Error,
		"Make keys of letters, digits, _ - . : and comma, unlike a UUID."},
	{"KB019", "half a concurrency", Error, Error,
		"Write concurrency and concurrency_group together. concurrency_method needs both."},
	{"KB020", "broken condition", Error, Error,
		"Close quotes, regular expressions and parentheses in `if`, and use the operators == != =~ !~ && || ! and includes."},
	{"KB021", "misspelt queue", Error, Error,
		"Write `queue` to choose a queue. Every other name is a tag that an agent must have, and a job that no agent has the tag for waits for ever."},
	{"KB022", "if beside branches", Warning, Error,
		"Use one of if and branches: Buildkite refuses both in one step."},
	{"KB023", "matrix token without a matrix", Warning, Error,
		"Name in {{matrix.…}} a dimension that the step's matrix has. Others stay in the text as they are, or Buildkite refuses the upload."},
	{"KB024", "command null", Error, Error,
		"Write a command, or a plugin that runs one. A job with neither ends before it has done anything."},

	{"KB025", "unknown name in a condition", Warning, Error,
		"Use variables that conditions have, such as build.branch, and the functions build.env and env. Buildkite refuses the upload otherwise."},

	{"KB101", "key of two steps", Error, Error,
		"Make every key the only one in the build, over all documents. Buildkite refuses the second upload."},
	{"KB102", "misspelt dependency", Warning, Error,
		"Depend on steps that exist: the build fails otherwise."},
	{"KB103", "cycle", Error, Error,
		"Steps must not wait for each other, by depends_on or by a wait step between them: none of them ever starts."},
	{"KB104", "own dependency", Error, Error,
		"A step cannot depend on itself or on the group it is in."},

	{"KB105", "dependency outside the stream", Info, Error,
		"Depend on steps of the same stream. A step uploaded before may have the key; if none has, the build fails."},

	{"KB106", "dependency outside a complete pipeline", Warning, Error,
		"Depend on steps that the pipeline has. A pipeline is complete when `--complete` says so, and as .buildkite/pipeline.yml, which a build begins with, unless a command or a plugin of it uploads more: no other stream can have the key then, and the build fails."},

	{"KB201", "no queue", Info, Error,
		"Name the queue of a command step, in the step or at the top. Without one the job goes to the default queue, whatever machines that has."},
	{"KB202", "no timeout", Info, Error,
		"Give a command step timeout_in_minutes. Without it a job that hangs holds its machine until somebody looks."},
	{"KB203", "plugin not pinned", Info, Error,
		"Pin plugins to a version or a commit. A plugin without one, or from a branch, changes between two runs. The kubernetes plugin is read by the cluster and has no version."},
	{"KB204", "image not pinned", Info, Error,
		"Name images by digest or by a tag other than latest."},
	{"KB205", "privileged container", Info, Error,
		"Keep containers unprivileged. A privileged one is root on the machine."},
	{"KB206", "environment propagated", Info, Error,
		"Name the variables a container gets. Propagating hands it all that the job has."},
	{"KB207", "every GPU", Info, Warning,
		"Let the machine choose the GPU: `gpus: all` gives a job the GPUs of its neighbours, and a number always means the first ones. It is right where one job has the whole machine."},
	{"KB208", "agent in the container", Info, Error,
		"Keep the agent, its token and cloud credentials out of containers that run what somebody submitted."},
	{"KB209", "host directories", Info, Error,
		"Mount no directories or sockets of the host. The docker socket is root on the machine."},
	{"KB210", "settings evaluated on the host", Info, Error,
		"Leave expand-volume-vars, expand-image-vars and chown off: the first two run through a shell on the host, the third starts a second container as root."},
	{"KB211", "docker plugin before v5.12.0", Info, Error,
		"Use docker#v5.12.0 or newer. From v5.9 to v5.11 a failed image pull ends the job with exit status 0, green."},
	{"KB212", "variables of the agent", Info, Error,
		"Set no BUILDKITE_… variable, BASH_ENV, ENV, LD_PRELOAD or PATH for a job: they change what the agent and its hooks do. Machines that run submissions refuse such jobs."},

	{"KB301", "jobs in one upload", Error, Error,
		"Upload at most 500 jobs at once. Every step counts, a group beside its steps, parallelism and matrix as many jobs as they make."},
	{"KB302", "jobs in one build", Error, Error,
		"Create at most 4000 jobs and 500 uploads in one build, retries included."},
	{"KB303", "size of a matrix", Warning, Error,
		"Keep to 6 dimensions, 25 elements each, 128 bytes per element and 50 jobs, and do not put parallelism beside a matrix. Skipped combinations do not count, added ones do."},
	{"KB304", "length of a key", Error, Error,
		"Keep keys to 100 characters."},
	{"KB305", "length of a reason to skip", Error, Error,
		"Keep the reason to skip to 70 characters."},
	{"KB306", "length of a concurrency group", Error, Error,
		"Keep the name of a concurrency group between 1 and 200 characters."},
	{"KB307", "retries", Error, Error,
		"Ask for at most 10 retries per rule."},
	{"KB308", "size of a variable", Error, Error,
		"Keep every variable of a job, with its name, below 131072 bytes, the command and the settings of its plugins among them. Linux starts no program with a longer one: the job ends before its first line with exit status -1."},
	{"KB309", "size of the environment", Warning, Error,
		"Keep all variables of a job below one million bytes together. Linux takes a quarter of the stack limit, often 2 MiB, and the agent needs its part."},

	{"KB310", "adjustments of a matrix", Info, Error,
		"Keep to 12 adjustments. Buildkite documents that limit; pipelines with more are known to run."},

	{"KB401", "broken expansion", Error, Error,
		"The agent replaces variables when it uploads, and refuses the whole upload for an expansion it does not know. It knows $X, ${X}, ${X:-default}, ${X-default}, ${X:1:2} and ${X?message}. Write $$ for what the job's shell shall expand."},
	{"KB402", "variable of the machine, replaced at upload", Error, Error,
		"A value that only the machine of the job knows cannot be in the uploaded text: the agent replaces variables where the upload runs. A default in the expansion becomes the value for every machine. Leave the setting to the machine's hook, or write the value."},
	{"KB403", "variable of the job, replaced at upload", Warning, Error,
		"Write $$ before variables that only the job has. With one $ the command gets the value of the job that uploads."},
	{"KB404", "variable of the script, replaced at upload", Warning, Error,
		"Write $$ before variables that the command itself sets. With one $ the agent replaces them before the script ever runs, as a rule by nothing."},
	{"KB405", "variable of the step, replaced at upload", Warning, Error,
		"Write $$ before variables that the step's own env sets. The upload knows only the env at the top of the document, and its own environment."},
	{"KB406", "variable at upload", Off, Error,
		"kbgen resolves everything when it renders, and doubles every $ that is meant for the job."},

	{"KB501", "rule that never matches", Warning, Error,
		"A rule must be able to match: jobs with exit status 0 are not retried, \"*\" means 1 to 255 and so not -1, and a job that ended for a signal reason has exit status -1."},
	{"KB502", "rule behind one that takes everything", Warning, Error,
		"Order rules from narrow to wide: the first rule that matches decides alone, also when its limit is used up."},
	{"KB503", "exit status 0 as a soft failure", Warning, Error,
		"Name exit statuses from 1 to 255 or -1: a job with exit status 0 has not failed."},

	{"KB601", "plugin without a table", Info, Info,
		"The settings of plugins outside kbgen's own tables are not checked."},
	{"KB602", "unknown setting", Error, Error,
		"Use settings that this version of the plugin has, and those of the kubernetes plugin on both levels. Agents look at the settings only when plugin validation is on; otherwise a setting that does not exist is ignored without a word."},
	{"KB603", "type of a setting", Info, Error,
		"Give settings the types that the plugin declares, cpus and memory as text among them. Agents with plugin validation on refuse the job."},
	{"KB604", "setting that does something else", Warning, Error,
		"Some settings of the docker plugin, and containers in a patch of the kubernetes plugin, do something else than they say, see the message."},
	{"KB605", "missing setting", Info, Error,
		"Write the settings that the plugin cannot do without."},
	{"KB606", "second name of a setting", Info, Error,
		"Write settings as the plugin declares them, with hyphens. Underscores and capitals work only while plugin validation is off."},

	{"KB607", "plugin's name with blanks", Error, Error,
		"Write the name of a plugin without blanks: no repository has such a name, and the job ends before its command."},
	{"KB608", "version outside the table", Warning, Error,
		"Use a version of the docker plugin that was released. What settings another has is not known; of those of the other plugins only what looks misspelt is named."},

	{"KB701", "secret in the text", Warning, Error,
		"Keep the values of variables with names like *_TOKEN or *_PASSWORD out of pipelines. Use secrets, or a hook on the machine. The message never shows the value."},
	{"KB702", "text like a token", Error, Error,
		"Keep tokens and private keys out of pipelines. The message never shows the text."},
	{"KB703", "encrypted secret under a name that agents refuse", Warning, Error,
		"Carry an encrypted value in a variable named *_KBSEC. Agents from version 4 on refuse the upload of a pipeline that sets a variable like *_TOKEN, whatever the value is."},
	{"KB704", "secret beside a submission", Error, Error,
		"Give no secret to a step that runs a submission (KERNELBOT_UNTRUSTED, or kbrun evaluate in its command): no secrets of Buildkite, no encrypted variables, no plugin that fetches some, no kbgen secret get. Post results in a step of its own."},
	{"KB705", "secret in an interpolation", Error, Error,
		"Write $$ before a variable like *_TOKEN. With one $ its value goes into the uploaded pipeline: agents of version 3 upload it in clear with a warning, from version 4 on they refuse."},

	{"KB801", "refused by the agent's parser", Error, Error,
		"The parser of the agent refuses the document."},
	{"KB802", "warning of the agent's parser", Warning, Error,
		"The parser of the agent does not understand the step and hands it on as it is: it cannot be signed, and with --reject-parse-warnings the upload fails where nothing but steps stands in the document."},
}

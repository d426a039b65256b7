package main

const checkHelp = `usage: kbgen check [options] FILE|-...

Applies every rule to pipelines, also to those that kbgen did not write: their
format, dependencies, limits, variables, retries, plugins, secrets. A file may
hold several documents. docs/rules.md explains the rules.

options:
  --json                an array (kbgen schema findings), instead of lines
                        FILE:LINE:COLUMN: SEVERITY: message [RULE]
  --github              annotations of a GitHub workflow
  --severity SEVERITY   the least severity that fails: error (default), warning
                        or info. Warnings are always shown, info when asked for
  --ignore RULE         leaves a rule out; again, or KB201,KB202, for several
  --strict              what kbgen itself keeps to: one form for everything,
                        nothing left to replace, policies as errors
  --complete            nothing else is uploaded: a dependency on no step of it
                        is a warning, as in .buildkite/pipeline.yml
  --no-interpolation    the pipeline is uploaded with --no-interpolation
  --rules               lists the rules with their severity and that of
                        --strict; also with --json (kbgen schema rules)

A comment in the file can allow a finding, for its line or its step:
  privileged: true # kbgen:allow KB205 needs performance counters

stdout: the findings
exit status: 0 nothing found, 1 failed, 2 wrong usage, 3 findings

example:
  kbgen check .buildkite/*.yml
`

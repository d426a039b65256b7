package main

const checkHelp = `usage: kbgen check [options] FILE|-...

Applies every rule to pipelines, also to those that kbgen did not write: their
format, dependencies, limits, variables, retries, plugins, secrets. A file may
hold several documents. docs/rules.md explains the rules.

options:
{options}

A comment in the file can allow a finding, for its line or its step:
  privileged: true # kbgen:allow KB205 needs performance counters

stdout: the findings
exit status: 0 nothing found, 1 failed, 2 wrong usage, 3 findings

example:
  kbgen check .buildkite/*.yml
`

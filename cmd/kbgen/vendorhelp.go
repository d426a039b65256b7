package main

const helpVendor = `usage:
  kbgen vendor init --gpu NAME [options] > FILE    write a queue file
  kbgen vendor check FILE...                       say all that is wrong with it

A queue file says what a vendor lends: machines, GPUs, the queue, CPUs, memory,
disk, network, and who to ask. docs/vendors.md explains it line by line.

options of init:
  --gpu NAME            GPU type (kbgen gpus lists them)
  --vendor NAME         who lends, in lower case (default: example)
  --node NAME           the machine's name (default: node-1)
  --count N             GPUs of the machine (default: those of one job)
options of check:
  --json                an array of faults (kbgen schema findings), not lines
  --live                then ask Buildkite for the queues and agents, by
                        "kblaunch queues --check FILE": it needs
                        BUILDKITE_API_TOKEN (read_clusters, read_agents)

FILE may be -, without --live. Files given together are compared too.
stdout: the file; the faults, notes among them
exit status: 0 done, 1 failed, 2 wrong usage, 3 a fault was found

example:
  kbgen vendor init --gpu H100_BK --count 8 > node.yml
  kbgen vendor check node.yml
`

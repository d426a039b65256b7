package main

const helpVendor = `usage:
  kbgen vendor init --gpu NAME [options] > FILE    write a queue file
  kbgen vendor check FILE...                       say all that is wrong with it

A queue file says what a vendor lends: machines, GPUs, the queue, CPUs, memory,
disk, network, and who to ask. docs/vendors.md explains it line by line.

options of init:
{options init}

options of check:
{options check}

FILE may be -, without --live. Files given together are compared too.
stdout: the file; the faults, notes among them
exit status: 0 done, 1 failed, 2 wrong usage, 3 a fault was found

example:
  kbgen vendor init --gpu H100_BK --count 8 > node.yml
  kbgen vendor check node.yml
`

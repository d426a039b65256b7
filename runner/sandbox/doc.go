// Package sandbox runs a program that nobody trusts. It knows what the machine
// offers to shut a program in, and reports what was got; it does not know what
// the program is, nor what its output means.
//
// The strongest means that the machine allows is taken, anew for every process:
//
//   - namespaces (as root): own view of processes, files, network, IPC and host
//     name, and a user id of its own. Process 1 of the box is this program
//     again, so that nothing survives it: the kernel ends the rest with it.
//   - user namespaces (as an ordinary user): the same, under the same user id.
//   - process: what a process can do to itself. Landlock for files and TCP,
//     limits, no new privileges; as root also a user id of its own. This is what
//     is left inside of a container without capabilities.
//
// Building a box of namespaces takes 5 ms, most of it alone on its processor: the
// next one can be built while a program runs ([Box.Ready]). Its first process
// then waits, out of sight of every other box, for an order.
//
// A control group is used where one can be made. What the means cannot give is
// reported as missing, guard by guard ([schema.Guards]), and a box weaker than
// [Options.Minimum] runs nothing.
//
// Programs that use this package call [Main] before anything else: a box begins
// as a second run of the same executable.
//
// Turned down: bubblewrap (one more thing to install and a process more per
// run; the calls it makes are made here), a user id per machine (two jobs on it
// would share their limits), hiding by deny-list (whatever it forgets is open).
package sandbox

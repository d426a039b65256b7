// Package sandbox runs a program that nobody trusts. It knows what the machine
// offers to isolate a program, and reports what it got; it does not know what
// the program is, nor what its output means.
//
// Every process gets the strongest means that the machine allows:
//
//   - namespaces (as root): its own view of processes, files, network, IPC and
//     host name, and its own user id. Process 1 of the sandbox is this program
//     again. The kernel ends the rest with it, so nothing survives.
//   - user namespaces (as an ordinary user): the same, under the same user id.
//   - process: what a process can do to itself. Landlock for files and TCP,
//     limits, no new privileges; as root also its own user id. This is what is
//     left inside a container without capabilities.
//
// Building a sandbox of namespaces takes 5 ms, most of it on a processor of its
// own, so the next one can be built while a program runs ([Sandbox.Ready]). Its
// first process then waits for a request, where no other sandbox sees it.
//
// A control group is used where one can be made. What the means cannot give is
// reported as missing, guard by guard ([schema.Guards]), and a sandbox weaker
// than [Options.Minimum] runs nothing.
//
// Programs that use this package call [Main] before anything else: a sandbox
// begins as a second run of the same executable.
//
// Turned down: bubblewrap (one more thing to install and one more process per
// run; the calls it makes are made here), one user id per machine (two jobs on
// it would share their limits), a deny-list of paths (whatever it forgets is
// open).
package sandbox

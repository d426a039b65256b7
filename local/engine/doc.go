// Package engine is the stand-in's Buildkite without HTTP. It keeps pipelines,
// builds, jobs, agents, queues, artifacts, meta-data and annotations in memory
// (logs and artifact bytes in files), decides which job may run and which agent
// gets it, and tells subscribers what happened.
//
// Facts it follows: Buildkite's documentation of steps, dependencies, retries
// and job states, and what buildkite-agent v3 does (buildkite/agent).
//
// # Locks
//
// [Engine] has one mutex, and it guards everything: the maps of the engine, and
// every build, node, job, agent, stream, queue and artifact that is reachable
// from them. Below it stands Subscription.mu, which guards the events that wait in
// one subscription: whoever holds it takes no other lock.
//
// Exported methods take the engine's lock, most of them in change and query, and
// none calls another that does. Unexported ones are called with the lock held and
// never touch it, but for sweep, which the clock calls. A test holds both rules.
//
// Nothing waits with the lock held. [Engine.Wait] unlocks while it waits for a
// build's next change of state, [Stream.Next] while it waits for the agent's next
// order; woken, both look again. [Subscription.Next] does not need the lock.
//
// Foreign code that runs with the lock held, and so must not call the engine:
// Options.Now, and the function given to [Engine.UpdatePipeline]. Of files, log
// chunks are written and artifacts deleted with the lock held; logs and artifact
// bytes are read without it.
//
// # Changes
//
// A method that changes a job or a step goes three ways, in this order: it
// changes the job (setJob, end, makeReady), lets the build move as far as it
// can (advance), and offers what became ready to idle agents (dispatch). A
// clock does the same for deadlines, ten times a second.
//
// # Events
//
// Events are published with the lock held, each where its change is made: states
// of jobs in setJob, scheduled, Start and end, states of builds in setBuild, the
// loss of an agent in lose, all others in the exported method that makes the
// change. So every subscriber sees them in the order of the changes. Publishing
// never waits: a subscription takes any number of events. What an event holds is
// a copy, made at that time.
//
// # Copies
//
// What the methods hand out are copies. They share with the engine only what
// never changes once it is made: a build's env, a job's step and query rules, an
// agent's tags. Callers must not write to these.
package engine

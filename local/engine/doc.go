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
// from them. Two small locks stand below it:
//
//   - Subscription.mu guards the events that wait in one subscription.
//   - logStore.mu guards the set of open log files. (How much of a log has come
//     is in its job, under the engine's lock.)
//
// Order: the engine's lock first, then one of the small ones. The small ones are
// never held together, and whoever holds one takes no other lock.
//
// Exported methods take the engine's lock and hold it until they return; none
// calls another exported one that does. Unexported ones that use the engine's
// state are called with the lock held, and never unlock it. Two methods wait,
// and unlock while they do: [Engine.Wait] for a build's next change of state,
// and [Stream.Next] for the agent's next order. Both look again under the lock
// when they are woken. [Subscription.Next] waits without the engine's lock.
//
// Foreign code that runs with the lock held, and so must not call the engine:
// Options.Now, and the function given to [Engine.UpdatePipeline]. Of files, log
// chunks are written and artifacts deleted with the lock held; logs and artifact
// bytes are read without it.
//
// # Changes
//
// A method that changes a job or a step goes three ways, in this order: it
// changes the job (setJob, end, makeReady), lets the build go as far as it goes
// by itself (advance), and offers what became ready to idle agents (dispatch). A
// clock does the same for deadlines, ten times a second.
//
// # Events
//
// Events are published with the lock held, each where its change is made: states
// of jobs in setJob, end and scheduled, states of builds in setBuild, the rest in
// the exported method that makes the change. So every subscriber sees them in
// the order of the changes. Publishing never waits: a subscription takes any
// number of events. What is in an event is a copy, made at that time.
//
// # Copies
//
// What the methods hand out are copies. They share with the engine only what
// never changes after it was made: a build's env, a job's step and query rules.
// Callers must not write to these.
package engine

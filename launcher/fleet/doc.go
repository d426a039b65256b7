// Package fleet holds what vendors promise in queue files against what
// Buildkite knows: the queues and agents that are there now.
//
// [Read] asks Buildkite once. [Live.List] sums up what is connected,
// [Live.Compare] says what is missing of a promise and which agents nobody
// promised. Neither looks into the queue files' own faults, which is
// queuefile.Check's task, and nothing here changes anything at Buildkite.
//
// Names, tags and notes of agents and queues are written by whoever started
// them: everything that is said of them is cleaned by package text.
package fleet

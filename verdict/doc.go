// Package verdict says what a result means, in every form in which somebody
// reads it: text for a terminal, the log of a job, Markdown for Buildkite's
// annotation, JSON for programs and pages. All forms are written from one
// [Verdict], so that they cannot disagree.
//
// It is pure: a result goes in, text comes out. It knows no build, no launcher
// and no clock, and it decides nothing: who won is in the result.
//
// The texts of a result are foreign: names of cases, messages and output come
// from testers and submissions. A Verdict holds them as they came; each form
// cleans them by package text, and those for people bound them.
package verdict

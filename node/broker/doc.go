// Package broker hands secrets to the steps that may have them: on a vendor's
// node, as root, with the node's private keys.
//
// A step brings the envelope and a token that Buildkite has signed for its job.
// What the envelope is bound to is compared with what the token claims, and with
// nothing else: variables and files of a job are the job's own word. A node
// without such tokens has a [hostPolicy] policy, which trusts what runs there as a
// whole and therefore opens less.
//
// Every answer is logged with who asked, for which job; no value ever is.
package broker

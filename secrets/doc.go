// Package secrets seals values so that only the vendors' nodes can read them,
// for steps that are named, until a day that is named.
//
// A sealed value (kbsec1) is an age file around one JSON object: the value, its
// name, and to whom it may be given. It can lie in a public repository: who
// knows the recipients' public keys can seal, and only a node's broker can open.
//
// The package is pure. It knows no agent, no job and no machine: whether a job
// is what it claims to be, others find out; here its claims are compared
// ([Secret.Allow]). No error holds any part of a value.
//
// Decisions: hybrid keys (ML-KEM-768 with X25519) are the default, since what is
// committed stays readable for years. A key serves one format: the RSA keys that nodes
// already have open the old formats only. Bindings are UUIDs, never slugs, which can
// be given away and made anew.
package secrets

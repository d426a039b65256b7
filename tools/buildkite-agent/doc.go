// Package agent is where go.mod pins the buildkite-agent that kbgen is
// developed and tested with, as a tool; it has no code of its own. It is a
// module beside the product's so that the agent's dependencies stay out of it.
//
// One of those dependencies, drjosh.dev/zzglob, is served by a host that not
// every module proxy mirrors, so go.mod takes it from its repository. Another,
// the AWS SDK's EC2 package, takes 2.8 GB to compile for one call that nobody makes here;
// ../ec2 stands in for it. Everything else in
// the binary is Buildkite's: github.com/buildkite/agent/v3, MIT licence.
//
// Build it with "sh tools/agent.sh" from anywhere. "go test ./..." here drives
// the built binary against a small artifact server on loopback.
//
// To move to another version: "go get -tool github.com/buildkite/agent/v3@vX.Y.Z"
// and "go mod tidy" here, then the same version in tools/agent.sh.
package agent

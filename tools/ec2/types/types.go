// Package types holds the two types of EC2's API that buildkite-agent names.
package types

// A Filter is a condition on what is listed.
type Filter struct {
	Name   *string
	Values []string
}

// A TagDescription is a tag of a resource.
type TagDescription struct {
	Key   *string
	Value *string
}

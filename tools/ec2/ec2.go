// Package ec2 is a stand-in for the AWS SDK's package of that name, which is
// one package of several hundred thousand lines: compiling it takes gigabytes of
// memory and a good part of the time that building buildkite-agent takes. The
// agent calls one function of it, for agents that run on EC2 and are told to
// take their tags from there (--tags-from-ec2-tags). Here that function says
// that it cannot.
package ec2

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// ErrNotBuilt is what every call answers.
var ErrNotBuilt = errors.New("this buildkite-agent was built for kbgen's tests, without the EC2 API: install Buildkite's own to use EC2's tags")

// Options are never set by the agent.
type Options struct{}

// A Client has the one call that the agent makes.
type Client struct{}

// NewFromConfig returns a client that answers every call with [ErrNotBuilt].
func NewFromConfig(aws.Config, ...func(*Options)) *Client { return &Client{} }

// DescribeTagsInput selects tags.
type DescribeTagsInput struct {
	Filters []types.Filter
}

// DescribeTagsOutput holds the tags found.
type DescribeTagsOutput struct {
	Tags []types.TagDescription
}

// DescribeTags fails with [ErrNotBuilt].
func (c *Client) DescribeTags(context.Context, *DescribeTagsInput, ...func(*Options)) (*DescribeTagsOutput, error) {
	return nil, ErrNotBuilt
}

package launcher

import (
	"context"
	"fmt"
	"sync/atomic"
)

// A use is what a request is for. It decides who goes first when requests are
// short, the smaller before the greater, and where the request is counted.
type use int

const (
	useCancel use = iota // frees a GPU
	useCreate
	useLookup // of a build whose creation was uncertain
	useArtifacts
	useDownload
	useOther // jobs of a failed build, log tails, queues
	usePoll  // shared by all builds that are waited for
	uses     // how many there are
)

type useKey struct{}

// withUse says what the requests made under ctx are for.
func withUse(ctx context.Context, u use) context.Context {
	return context.WithValue(ctx, useKey{}, u)
}

func useOf(ctx context.Context) use {
	if u, ok := ctx.Value(useKey{}).(use); ok {
		return u
	}
	return useOther
}

// Calls counts requests by what they were for: each page of a list, and each
// repetition, is one.
type Calls struct {
	Total     int // everything sent to the API
	Creates   int
	Lookups   int // of a build whose creation was uncertain
	Polls     int // shared by all builds that are waited for
	Artifacts int // artifact lists
	Downloads int // links to an artifact; the store itself is not the API
	Others    int // cancel, jobs of a failed build, log tails
}

// counters count the requests of one client.
type counters struct{ sent [uses]atomic.Int64 }

// Calls returns what this client has sent so far.
func (c *Client) Calls() Calls {
	n := func(u use) int { return int(c.counters.sent[u].Load()) }
	calls := Calls{
		Creates: n(useCreate), Lookups: n(useLookup), Polls: n(usePoll),
		Artifacts: n(useArtifacts), Downloads: n(useDownload), Others: n(useOther) + n(useCancel),
	}
	calls.Total = calls.Creates + calls.Lookups + calls.Polls + calls.Artifacts + calls.Downloads + calls.Others
	return calls
}

// String lists the requests: "6: 1 create, 3 polls, …".
func (n Calls) String() string {
	return fmt.Sprintf("%d: %d create, %d polls, %d artifact lists, %d downloads, %d other",
		n.Total, n.Creates, n.Polls, n.Artifacts, n.Downloads, n.Total-n.Creates-n.Polls-n.Artifacts-n.Downloads)
}

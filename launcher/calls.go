package launcher

import (
	"fmt"
	"sync/atomic"
)

// Calls counts requests by what they were for. Retries after 429 are counted
// in Total only.
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
type counters struct {
	total, creates, lookups, polls, artifacts, downloads, others atomic.Int64
}

// Calls returns what this client has sent so far.
func (c *Client) Calls() Calls {
	n := func(v *atomic.Int64) int { return int(v.Load()) }
	t := c.counters
	return Calls{n(&t.total), n(&t.creates), n(&t.lookups), n(&t.polls), n(&t.artifacts), n(&t.downloads), n(&t.others)}
}

// String lists the requests: "6: 1 create, 3 polls, …".
func (n Calls) String() string {
	return fmt.Sprintf("%d: %d create, %d polls, %d artifact lists, %d downloads, %d other",
		n.Total, n.Creates, n.Polls, n.Artifacts, n.Downloads, n.Total-n.Creates-n.Polls-n.Artifacts-n.Downloads)
}

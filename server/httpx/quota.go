package httpx

import (
	"context"
	"errors"
	"sync"
)

// Errors of [Quota.Take].
var (
	ErrClientFull = errors.New("this client has too many open at once")
	ErrFull       = errors.New("too many are open at the moment")
)

// A Quota bounds how many of something are open at once.
type Quota struct {
	Each int // of one client; an address may have addressFactor times as many
	All  int // of all clients together; 0: no limit

	mu   sync.Mutex
	held map[string]int
	all  int
}

// NewStreamQuota bounds streams of events. The API and the pages share one.
func NewStreamQuota() *Quota { return &Quota{Each: 16, All: 5_000} }

// Take counts one more for a caller (see [Caller]; "" counts for the address alone)
// and for the address that the request comes from. release takes it back; it may be
// called more than once.
//
// Errors: [ErrClientFull], [ErrFull].
func (q *Quota) Take(ctx context.Context, caller string) (release func(), err error) {
	network := Network(Client(ctx))
	limits := map[string]int{"from " + network: q.Each * addressFactor}
	if caller != "" && caller != network {
		limits[caller] = q.Each
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.All > 0 && q.all >= q.All {
		return nil, ErrFull
	}
	for name, limit := range limits {
		if q.held[name] >= limit {
			return nil, ErrClientFull
		}
	}
	if q.held == nil {
		q.held = map[string]int{}
	}
	q.all++
	for name := range limits {
		q.held[name]++
	}
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.all--
		for name := range limits {
			if q.held[name]--; q.held[name] == 0 {
				delete(q.held, name)
			}
		}
	}), nil
}

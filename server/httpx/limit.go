package httpx

import (
	"container/list"
	"math"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rates of a [Limiter] that says nothing else. popcorn-cli asks every 5 s.
const (
	defaultPerSecond = 10
	defaultBurst     = 60
)

// addressFactor is how much more an address may ask than one client: many people
// may stand behind it.
const addressFactor = 10

// maxClients bounds the memory: of more, those who asked longest ago are forgotten,
// which gives them their burst back.
const maxClients = 50_000

// A Limiter holds clients to a rate. The zero one has the default rates.
type Limiter struct {
	PerSecond float64 // of one client; 0: DefaultPerSecond, negative: no limit
	Burst     int     // 0: DefaultBurst

	mu      sync.Mutex
	buckets map[string]*list.Element
	recent  *list.List // of *bucket, the latest asked first
}

type bucket struct {
	name  string
	limit *rate.Limiter
}

// Ask takes one request from a client's allowance, and returns how long the client
// must wait when there is none; 0: it may go on.
func (l *Limiter) Ask(client string) time.Duration { return l.ask(client, 1, 1) }

// AskFor is Ask for something that costs as much as n requests.
func (l *Limiter) AskFor(client string, n int) time.Duration { return l.ask(client, 1, n) }

// address counts what comes from an address before anybody knows who it is.
func (l *Limiter) address(a netip.Addr) time.Duration {
	return l.ask("from "+Network(a), addressFactor, 1)
}

// Network is an address as one client: of IPv6, the network that one gets.
func Network(a netip.Addr) string {
	if a.Is6() && !a.Is4In6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.Unmap().String()
}

func (l *Limiter) ask(name string, factor float64, n int) time.Duration {
	if l == nil || l.PerSecond < 0 {
		return 0
	}
	now := time.Now()
	bucket := l.bucket(name, factor)
	reserved := bucket.ReserveN(now, min(n, bucket.Burst()))
	wait := reserved.DelayFrom(now)
	if wait > 0 {
		reserved.CancelAt(now)
	}
	if wait == rate.InfDuration {
		wait = time.Minute
	}
	return wait
}

func (l *Limiter) bucket(name string, factor float64) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buckets == nil {
		l.buckets, l.recent = map[string]*list.Element{}, list.New()
	}
	if e, found := l.buckets[name]; found {
		l.recent.MoveToFront(e)
		return e.Value.(*bucket).limit
	}
	perSecond, burst := l.PerSecond, l.Burst
	if perSecond == 0 {
		perSecond = defaultPerSecond
	}
	if burst == 0 {
		burst = defaultBurst
	}
	b := &bucket{name, rate.NewLimiter(rate.Limit(perSecond*factor), int(math.Ceil(float64(burst)*factor)))}
	l.buckets[name] = l.recent.PushFront(b)
	if l.recent.Len() > maxClients {
		oldest := l.recent.Back()
		delete(l.buckets, oldest.Value.(*bucket).name)
		l.recent.Remove(oldest)
	}
	return b.limit
}

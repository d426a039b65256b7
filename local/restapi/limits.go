package restapi

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Limits are the two request quotas, each over its own fixed windows.
type Limits struct {
	Organization int           // requests of all users per window, 200 when 0
	User         int           // requests of one user per window, 50 when 0
	Window       time.Duration // 60 seconds when 0
}

// Unlimited is the limit in headers when none is set.
const Unlimited = 1_000_000

// A meter counts requests, rejected ones included.
type meter struct {
	limits   Limits
	enforced bool
	now      func() time.Time

	mu    sync.Mutex
	org   window
	users map[string]*window // one per user of a token
}

type window struct {
	start time.Time
	count int
}

// A reading is the state of one quota. Resets are whole seconds from now.
type reading struct {
	Scope   string `json:"scope"` // "rest" or "rest_user"
	Limit   int    `json:"limit"`
	Current int    `json:"current"`
	Reset   int    `json:"reset"`
	end     time.Time
}

func newMeter(limits *Limits, now func() time.Time) *meter {
	m := &meter{limits: Limits{Organization: Unlimited, User: Unlimited}, now: now, users: map[string]*window{}}
	if limits != nil {
		m.limits, m.enforced = *limits, true
	}
	m.limits.Organization = cmp.Or(m.limits.Organization, 200)
	m.limits.User = cmp.Or(m.limits.User, 50)
	m.limits.Window = cmp.Or(m.limits.Window, time.Minute)
	return m
}

// tooMany is the body of a 429 answer.
type tooMany struct {
	Message string `json:"message"`
	reading
}

// count counts a request of the user and sets the headers; it returns the
// answer of a request that is over a limit.
func (m *meter) count(user string, h http.Header) *tooMany {
	m.mu.Lock()
	defer m.mu.Unlock()
	mine, ok := m.users[user]
	if !ok {
		mine = &window{}
		m.users[user] = mine
	}
	quotas := []reading{m.read(&m.org, "rest", m.limits.Organization, 1), m.read(mine, "rest_user", m.limits.User, 1)}
	quotas[0].write(h, "RateLimit-")
	quotas[1].write(h, "RateLimit-User-")
	for _, q := range quotas {
		if q.Current > q.Limit {
			return &tooMany{fmt.Sprintf("The API rate limit is exceeded, wait %d seconds", q.Reset), q}
		}
	}
	return nil
}

// describe sets the organization's headers without counting, on answers to
// requests without a user.
func (m *meter) describe(h http.Header) {
	m.organization().write(h, "RateLimit-")
}

func (m *meter) organization() reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read(&m.org, "rest", m.limits.Organization, 0)
}

// read adds n to a window, a new one when the last has passed.
func (m *meter) read(w *window, scope string, limit, n int) reading {
	now := m.now()
	if w.start.IsZero() || now.Sub(w.start) >= m.limits.Window {
		*w = window{start: now}
	}
	w.count += n
	end := w.start.Add(m.limits.Window)
	left := end.Sub(now)
	return reading{Scope: scope, Limit: limit, Current: w.count, Reset: int((left + time.Second - 1) / time.Second), end: end}
}

func (r reading) write(h http.Header, prefix string) {
	h.Set(prefix+"Scope", r.Scope)
	h.Set(prefix+"Remaining", strconv.Itoa(r.Limit-r.Current))
	h.Set(prefix+"Limit", strconv.Itoa(r.Limit))
	h.Set(prefix+"Reset", strconv.Itoa(r.Reset))
	if r.Current >= r.Limit {
		h.Set(prefix+"Warning", fmt.Sprintf("%s: no requests remaining for %d seconds", r.Scope, r.Reset))
	}
}

package launcher

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// A Run is one submission's build, as whoever collects its result keeps it: the
// run id alone finds it again, see [Client.Adopt].
type Run struct {
	ID       string // of the run, "sub-4711-B200_BK-0123456789"; its result repeats it
	Build    int    // number
	BuildURL string // of its page

	// What was asked for. A result for another GPU type or queue is refused;
	// where one of them is empty, it is not compared.
	GPU, Queue, Mode string
	Ranking          string // of the task, one of [schema.Rankings]; "": unknown

	Submitted time.Time // when the work on it began here
	Created   time.Time // when the build was there, by the clock here

	// QueueTimeout bounds the time until the evaluation's job starts, bootstrap
	// included; RunTimeout the time after that, and then again the time in which
	// the result is fetched. 0: 30 minutes each.
	QueueTimeout, RunTimeout time.Duration

	// Progress, when not nil, is called at every change and at every poll that
	// concerns this run, from one goroutine; it must not block.
	Progress func(Event)

	seen     *Build // as it was found
	repeated bool   // its create was: there may be a second build
}

// NewRunID makes an id for a run of a submission: its own id, the GPU type, and
// 40 random bits. Both parts are letters, digits, - and _.
func NewRunID(submission, gpu string) string {
	return fmt.Sprintf("sub-%s-%s-%s", submission, gpu, randomHex(5))
}

// ErrNoBuild is a run id of which no build is known.
var ErrNoBuild = errors.New("no build of this run")

// An UncertainError is a creation that was given up when it was not known
// whether it had made a build. A later Create with the same run id, and with
// Attempted set, finds that build or makes it.
type UncertainError struct {
	RunID string
	Err   error // why, and what was answered last
}

func (e *UncertainError) Error() string {
	return fmt.Sprintf("creating build: whether run %s has a build is unknown: %v", e.RunID, e.Err)
}

func (e *UncertainError) Unwrap() error { return e.Err }

// runOf is the run of a build that somebody made before.
func runOf(b *Build) *Run {
	r := &Run{ID: b.RunID(), GPU: b.GPU(), Queue: b.Queue(), Mode: b.Mode(), Ranking: b.word(metaRanking), Submitted: time.Now()}
	r.QueueTimeout, r.RunTimeout = orDefault(0), orDefault(0)
	r.is(b)
	r.Created = time.Now()
	if b.CreatedAt != nil && b.CreatedAt.Before(r.Created) {
		r.Created = b.CreatedAt.Time
	}
	return r
}

// is says which build the run has.
func (r *Run) is(b *Build) {
	r.Build, r.BuildURL, r.seen, r.Created = b.Number, b.WebURL, b, time.Now()
}

// progress tells the caller where the run is.
func (r *Run) progress(e Event) {
	if r.Progress == nil {
		return
	}
	e.RunID, e.Elapsed = r.ID, time.Since(r.Submitted)
	r.Progress(e)
}

// orDefault is a timeout that was left out.
func orDefault(d time.Duration) time.Duration {
	if d <= 0 {
		return 30 * time.Minute
	}
	return d
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

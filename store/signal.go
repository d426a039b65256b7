package store

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gpu-mode/kbgen/store/database"
)

// Kinds of a [Signal].
const (
	SignalPlanned    = "planned"    // runs were planned, or may be taken again; ID is ""
	SignalSubmission = "submission" // ID is the submission's
	SignalBoard      = "board"      // its ranking or itself; ID is the board's name
	SignalHint       = "hint"       // something happened to a run's build, says somebody; ID is the run's
)

// A Signal says that something has changed, and nothing of what it is now. Signals
// may get lost, where the connection to the database does: they are hints.
type Signal struct{ Kind, ID string }

// listeners are those of this process.
type listeners struct {
	mu  sync.Mutex
	all map[chan Signal]bool
}

// listenerRoom is how many signals one listener may lag behind; more are dropped.
const listenerRoom = 1024

func (l *listeners) send(signals ...Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range signals {
		for c := range l.all {
			select {
			case c <- s:
			default:
			}
		}
	}
}

// Signals returns the signals of all instances on this database, from now on until
// ctx ends. With SQLite those are the ones of this process.
func (s *Store) Signals(ctx context.Context) <-chan Signal {
	c := make(chan Signal, listenerRoom)
	if s.db.Kind == database.Postgres {
		go s.listen(ctx, c)
		return c
	}
	s.listeners.mu.Lock()
	if s.listeners.all == nil {
		s.listeners.all = map[chan Signal]bool{}
	}
	s.listeners.all[c] = true
	s.listeners.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.listeners.mu.Lock()
		defer s.listeners.mu.Unlock()
		delete(s.listeners.all, c)
		close(c)
	})
	return c
}

const signalChannel = "kbserve"

// listen reads notifications on a connection of its own, and makes a new one when
// that breaks.
func (s *Store) listen(ctx context.Context, c chan<- Signal) {
	defer close(c)
	for ctx.Err() == nil {
		conn, err := pgx.ConnectConfig(ctx, s.db.Config)
		if err == nil {
			_, err = conn.Exec(ctx, "LISTEN "+signalChannel)
			for err == nil {
				var n *pgconn.Notification
				if n, err = conn.WaitForNotification(ctx); err == nil {
					var signal Signal
					if json.Unmarshal([]byte(n.Payload), &signal) == nil {
						select {
						case c <- signal:
						default:
						}
					}
				}
			}
			closing, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			conn.Close(closing)
			stop()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// Signal tells everybody who listens, at once.
func (s *Store) Signal(ctx context.Context, signal Signal) error {
	if s.db.Kind == database.SQLite {
		s.listeners.send(signal)
		return nil
	}
	t := &tx{Store: s, ctx: ctx, on: s.db.Write}
	t.tell(signal)
	return wrap("sending a signal", t.err)
}

// tell sends signals when the transaction is committed, and not otherwise.
func (t *tx) tell(signals ...Signal) {
	if t.db.Kind == database.SQLite {
		t.signals = append(t.signals, signals...)
		return
	}
	for _, signal := range signals {
		body, err := json.Marshal(signal)
		if err != nil {
			t.fail(err)
		}
		t.exec(`SELECT pg_notify($1, $2)`, signalChannel, string(body))
	}
}

func submissionSignal(id int64) Signal {
	return Signal{Kind: SignalSubmission, ID: strconv.FormatInt(id, 10)}
}

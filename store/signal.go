package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/store/database"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

	// What transactions tell when they are committed. SQLite's write one at a time,
	// but one whose context ends is undone, and the next begins, before the first
	// one's function has returned.
	pending map[*sql.Tx][]Signal
}

// tell keeps signals until take asks for them.
func (l *listeners) tell(tx *sql.Tx, signals []Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending == nil {
		l.pending = map[*sql.Tx][]Signal{}
	}
	l.pending[tx] = append(l.pending[tx], signals...)
}

// take returns the signals that a transaction left, and removes them.
func (l *listeners) take(tx *sql.Tx) []Signal {
	l.mu.Lock()
	defer l.mu.Unlock()
	signals := l.pending[tx]
	delete(l.pending, tx)
	return signals
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
	return wrap("sending a signal", s.notify(ctx, s.db.Write, signal))
}

func (s *Store) notify(ctx context.Context, on database.Querier, signal Signal) error {
	body, err := json.Marshal(signal)
	if err == nil {
		_, err = s.db.Exec(ctx, on, `SELECT pg_notify($1, $2)`, signalChannel, string(body))
	}
	return err
}

// tell sends signals when the transaction is committed, and not otherwise.
func (s *Store) tell(ctx context.Context, tx *sql.Tx, signals ...Signal) error {
	if s.db.Kind == database.SQLite {
		s.listeners.tell(tx, signals)
		return nil
	}
	for _, signal := range signals {
		if err := s.notify(ctx, tx, signal); err != nil {
			return err
		}
	}
	return nil
}

func submissionSignal(id int64) Signal {
	return Signal{Kind: SignalSubmission, ID: strconv.FormatInt(id, 10)}
}

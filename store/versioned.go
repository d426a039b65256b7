package store

import "sync"

// versioned caches lists that are made of a board's ranking on a GPU type.
//
// One rule says when a list is out of date: when the version of its board
// (own.board.version) is higher than the list's. The version is read for each use,
// so that it does not matter which instance makes a change. Whatever changes a
// value that a cached list shows must call [tx.moved] in the same transaction:
//
//   - a decision that ranks, and with it a standing: tx.judge, Store.Rebuild
//   - a user's name: tx.upsertUser
//   - the policy of a board: tx.saveSettings
//
// The file name and the time of a submission never change. A new field of
// [ranking.Entry] or [Step] needs a new line here if any of these does not cover
// it, such as a number of tries, which rises without a standing that moves.
// TestStandingsFollowTheRuns compares cached lists with the rows after each change.
type versioned[T any] struct {
	mu    sync.Mutex
	lists map[boardGPU]*versionedList[T]
}

// A boardGPU is one ranking.
type boardGPU struct {
	board int64
	gpu   string
}

type versionedList[T any] struct {
	mu      sync.Mutex // held while the list is made
	version int64
	list    []T
}

// maxVersioned is how many lists are cached; no competition has more.
const maxVersioned = 512

// get returns the list of a ranking, from the cache if that has the version. Otherwise
// make makes it and returns the version that it saw. Callers must not change the list.
func (c *versioned[T]) get(target boardGPU, version int64, make func() ([]T, int64, error)) ([]T, error) {
	cached := c.at(target)
	cached.mu.Lock()
	defer cached.mu.Unlock()
	if cached.list != nil && cached.version >= version {
		return cached.list, nil
	}
	list, seen, err := make()
	if err != nil || len(list) == 0 { // an empty one is made quickly, and of names that somebody invents there are many
		c.drop(target)
		return nil, err
	}
	cached.list, cached.version = list, seen
	return list, nil
}

func (c *versioned[T]) at(k boardGPU) *versionedList[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists == nil || len(c.lists) > maxVersioned {
		c.lists = map[boardGPU]*versionedList[T]{}
	}
	if c.lists[k] == nil {
		c.lists[k] = &versionedList[T]{}
	}
	return c.lists[k]
}

func (c *versioned[T]) drop(k boardGPU) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lists, k)
}

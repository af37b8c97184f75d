package redisstore

import (
	"fmt"
	"time"

	"github.com/routelimit/limit/core"
)

const (
	far         = 5 * time.Millisecond  // away
	tooFar      = 80 * time.Millisecond // a server that answers later is taken for one in trouble
	roundTrips  = 6                     // of the longest call: it opens a connection, and sends the text of the script
	farInFlight = 8                     // calls of a batcher at the same time, to servers that are far
)

// A reach is how far away the farthest server is, and how long a call may take.
type reach struct {
	timeout  time.Duration
	distance time.Duration // the time in which a call was answered that was lately the fastest
	err      error         // of a call that takes longer
}

func newReach(timeout, distance time.Duration) *reach {
	return &reach{timeout, distance, fmt.Errorf("%w: Redis did not answer within %v", core.ErrOutOfReach, timeout)}
}

func (s *Store) timeout() time.Duration { return s.reach.Load().timeout }

// longest returns how long a call that has begun may take at most.
func (s *Store) longest() time.Duration {
	if s.adapts {
		return roundTrips * tooFar
	}
	return s.timeout()
}

// inFlight returns how many calls of a batcher there may be at the same time. While one is on its
// way to a distant server, that could decide many others.
func (s *Store) inFlight() int {
	if s.adapts && s.reach.Load().distance > far {
		return farInFlight
	}
	return maxInFlight
}

// measured notes how long a server took to say who it is. Calls since the last time may have been
// faster: they open no connections. A server that was near and has been silent is not far: what
// is known of it grows to twice as much at most.
func (s *Store) measured(at *server, took time.Duration) {
	if fastest := at.fastest.Swap(0); fastest != 0 {
		took = min(took, time.Duration(fastest))
	}
	if last := time.Duration(at.distance.Load()); last != 0 {
		took = min(took, 2*max(last, time.Millisecond))
	}
	at.distance.Store(int64(took))
	farthest := at.distance.Load()
	s.servers.Range(func(_, other any) bool {
		if other := other.(*server); ticks()-other.answered.Load() < int64(10*identifyEvery) { // it has not left a Cluster
			farthest = max(farthest, other.distance.Load())
		}
		return true
	})
	timeout := s.timeout()
	if s.adapts {
		timeout = defaultTimeout
		if farthest <= int64(tooFar) {
			timeout = max(timeout, (roundTrips * time.Duration(farthest)).Round(10*time.Millisecond))
		}
	}
	s.reach.Store(newReach(timeout, time.Duration(farthest)))
}

// identifyDistant identifies a server that did not answer in time, beside the calls and for a
// second. That opens a connection. By it, the second time shows how far away the server is.
func (s *Store) identifyDistant(a *attempt) {
	if s.adapts {
		s.identifyInBackground(a, &a.reaching, time.Second, 2)
	}
}

package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/redisfacts"
)

// watchedFor is how long instances publish after a subscriber has gone.
const watchedFor = 5 * time.Second

// Subscribe returns what instances publish from now on, until ctx ends or the loop stops.
// Prefix is that of their [Options]. Instances notice the subscriber within a second.
//
// An error says that Redis cannot be reached, that it withholds a right, or that a message is
// invalid, and is returned once if it repeats. The loop goes on, and returns batches again as soon
// as there are some. Batches that are published meanwhile, or while the loop takes too long for the
// next one, are lost. Subscribe panics if the client is nil or the prefix has braces, and needs the
// client's rights to SET a key and to SUBSCRIBE: see docs/watching.md.
func Subscribe(ctx context.Context, client redis.UniversalClient, prefix string) iter.Seq2[Batch, error] {
	caller := redisfacts.Bounded(client, callTime, "feed")
	channel, watched := names(prefix)
	return func(yield func(Batch, error) bool) {
		s := subscription{client: client, caller: caller, channel: channel, watched: watched, yield: yield}
		for ctx.Err() == nil && s.read(ctx) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

type subscription struct {
	client, caller   redis.UniversalClient
	channel, watched string
	yield            func(Batch, error) bool
	failure          string // that was returned last
}

// read returns batches until the subscription fails. It reports whether the loop wants more.
func (s *subscription) read(ctx context.Context) bool {
	subscriber := s.client.Subscribe(ctx, s.channel)
	defer subscriber.Close()
	defer context.AfterFunc(ctx, func() { subscriber.Close() })() // which ends a call of Receive
	if _, err := subscriber.Receive(ctx); err != nil {
		return s.failed(ctx, fmt.Errorf("feed: SUBSCRIBE %s: %w", s.channel, err))
	}
	messages := subscriber.Channel() // which subscribes again when the connection is lost
	timer := time.NewTicker(time.Second)
	defer timer.Stop()
	for more := s.announce(ctx); more; {
		select {
		case <-ctx.Done():
			return false
		case m, ok := <-messages:
			if !ok {
				return s.failed(ctx, errors.New("feed: the subscription has ended: is the client closed?"))
			}
			var batch Batch
			if err := json.Unmarshal([]byte(m.Payload), &batch); err != nil {
				more = s.failed(ctx, fmt.Errorf("feed: an invalid message on channel %s: %w", s.channel, err))
			} else {
				more = s.yield(batch, nil)
			}
		case <-timer.C:
			more = s.announce(ctx)
		}
	}
	return false
}

func (s *subscription) announce(ctx context.Context) bool {
	short, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := s.caller.Set(short, s.watched, 1, watchedFor).Err(); err != nil {
		return s.failed(ctx, fmt.Errorf("feed: SET %s: %w", s.watched, err))
	}
	s.failure = ""
	return true
}

func (s *subscription) failed(ctx context.Context, err error) bool {
	switch {
	case ctx.Err() != nil:
		return false
	case s.failure == err.Error():
		return true
	}
	s.failure = err.Error()
	return s.yield(Batch{}, err)
}

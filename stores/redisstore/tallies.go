package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// talliedFor is how long a shape of requests is decided as for keys that several algorithms
// charge, after it met one.
const talliedFor = 10 * time.Second

// talliedScript returns the script for keys that several algorithms charge if the batcher has met one
// of late, or nil.
func (b *batcher) talliedScript() *lua.Script {
	if b.tallied.Load() <= ticks() {
		return nil
	}
	return b.rules.Tallied(lua.Algorithms(b.others.Load()))
}

// nextTallied returns the script that may decide what another one, or nil for the usual one, has not
// decided for a reason; or nil if there is none.
func (b *batcher) nextTallied(reason error, script *lua.Script) *lua.Script {
	if reason == nil { // Lacking allocates
		return nil
	}
	lacks := lua.Lacking(reason)
	if lacks == 0 && (script != nil || !errors.Is(reason, lua.ErrValue)) {
		return nil
	}
	next := b.rules.Tallied(lua.Algorithms(b.others.Or(uint32(lacks))) | lacks)
	if next == script {
		return nil
	}
	return next
}

// decideTallied decides requests again whose keys may be charged by several algorithms: the
// script has found that something else has written them, or that it lacks an algorithm.
func (b *batcher) decideTallied(ctx context.Context, batch []*request, script *lua.Script) {
	for {
		var again []*request
		var asks [][]core.Ask
		next := script
		for _, r := range batch {
			if script := b.nextTallied(r.err, script); script != nil {
				again, asks, next = append(again, r), append(asks, r.asks), script
			}
		}
		if again == nil {
			return
		}
		batch, script = again, next
		reply, _, err := b.store.decide(ctx, b.rules, asks, script, false)
		if err == nil {
			b.tallied.Store(ticks() + int64(talliedFor))
			err = b.rules.Decode(reply, asks, func(i int, err error) { again[i].err = err })
		}
		if err != nil {
			for _, r := range again {
				r.err = err
			}
			return
		}
	}
}

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

// decideTallied decides requests again whose keys may be charged by several algorithms: the
// script has found that something else has written them, or that it lacks an algorithm.
func (b *batcher) decideTallied(ctx context.Context, batch []*request, script *lua.Script) {
	for {
		var again []*request
		var asks [][]core.Ask
		others := lua.Algorithms(b.others.Load())
		for _, r := range batch {
			if r.err == nil {
				continue
			}
			lacks := lua.Lacking(r.err)
			if others |= lacks; lacks != 0 || script == nil && errors.Is(r.err, lua.ErrValue) {
				again, asks = append(again, r), append(asks, r.asks)
			}
		}
		if again == nil {
			return
		}
		b.others.Store(uint32(others))
		next := b.rules.Tallied(others)
		if next == script {
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

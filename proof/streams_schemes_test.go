package proof

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// An admission settles what a reply has used. It is nil if the reply has to wait.
type admission func(used int64)

// schemes are ways in which a gateway may decide, by name. The two beside ours are what other
// gateways do, on fixed windows, since those have no other ones.
var schemes = map[string]func(client *redis.Client) (begin func() (admission, time.Duration)){
	"reserve, settle, debt": ours,
	"charge afterwards":     chargeAfterwards,
	"reserve, commit":       reserveAndCommit,
}

// windowNow returns the counter of this window, and how long the window lasts.
func windowNow() (counter string, rest time.Duration) {
	now := time.Now().UnixMilli()
	window := windowOfStreams.Milliseconds()
	return fmt.Sprint("counter:", now/window), time.Duration(window-now%window) * time.Millisecond
}

// chargeAfterwards admits while the counter of the window is below the limit, and charges what a
// reply has used when it ends.
func chargeAfterwards(client *redis.Client) func() (admission, time.Duration) {
	ctx := context.Background()
	return func() (admission, time.Duration) {
		counter, rest := windowNow()
		if used, err := client.Get(ctx, counter).Int64(); err != nil && err != redis.Nil || used >= tokensOfStreams {
			return nil, rest
		}
		return func(used int64) {
			counter, _ := windowNow()
			if err := client.IncrBy(ctx, counter, used).Err(); err != nil {
				panic(err)
			}
			client.PExpire(ctx, counter, 2*windowOfStreams)
		}, 0
	}
}

// reserve counts reservations beside the counter of the window. Each is of the same amount.
var reserve = redis.NewScript(`
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[1])
local used = tonumber(redis.call('GET', KEYS[1]) or 0) + redis.call('ZCARD', KEYS[2])*ARGV[3]
if used + ARGV[3] > tonumber(ARGV[4]) then return 0 end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[5])
return 1`)

// reserveAndCommit reserves one amount, and commits the true one when a reply ends, as RFC 0021 of
// Kuadrant says. A reservation that is not committed ends after 60 s.
func reserveAndCommit(client *redis.Client) func() (admission, time.Duration) {
	ctx := context.Background()
	return func() (admission, time.Duration) {
		counter, _ := windowNow()
		id, now := rand.Text(), time.Now().UnixMilli()
		ok, err := reserve.Run(ctx, client, []string{counter, "reservations"}, now, now+60_000, 1_000, tokensOfStreams, id).Bool()
		if err != nil {
			panic(err)
		}
		if !ok {
			return nil, 50 * time.Millisecond
		}
		return func(used int64) {
			counter, _ := windowNow()
			_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.ZRem(ctx, "reservations", id)
				p.IncrBy(ctx, counter, used)
				p.PExpire(ctx, counter, 2*windowOfStreams)
				return nil
			})
			if err != nil {
				panic(err)
			}
		}, 0
	}
}

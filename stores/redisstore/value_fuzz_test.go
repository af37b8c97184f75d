package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

// quotasOfAllForms are one for each form of a stored state.
var quotasOfAllForms = []core.Quota{
	{Limit: 5, Window: 60_000_000}, {Limit: 5, Window: 100_000_000_000}, {Limit: 1000, Window: 60_000_000}, {Limit: 1000, Window: 100_000_000_000},
	{Limit: limitOfRings, Window: 60_000_000}, {Limit: limitOfRings, Window: 100_000_000_000},
	{Algorithm: core.FixedWindow, Limit: 5, Window: 60_000_000}, {Algorithm: core.FixedWindow, Limit: 5, Window: 60_000_000, Aligned: true},
	{Algorithm: core.SlidingCells, Limit: 5, Window: 60_000_000, Cells: 10}, {Algorithm: core.SlidingCounter, Limit: 5, Window: 60_000_000},
	{Algorithm: core.TokenBucket, Limit: 5, Window: 60_000_000, Burst: 4, Missing: 1},
	{Algorithm: core.LeakyBucket, Limit: 5, Window: 60_000_000, Burst: 4},
	{Algorithm: core.Queue, Limit: 5, Window: 60_000_000, Burst: 4, MaxWait: 60_000_000},
	{Algorithm: core.Concurrency, Limit: 5, Window: 60_000_000},
	{Algorithm: core.Ban, Limit: 5, Window: 60_000_000, Bar: 60_000_000, MaxBar: 100_000_000_000},
	{Algorithm: core.Ban, Limit: 3, Window: 60_000_000, Bar: 60_000_000},
	{Algorithm: core.Distinct, Limit: 5, Window: 60_000_000},
}

// limitOfRings is that of logs that are stored as rings. Logs of other limits have few
// units, and are strings.
const limitOfRings = 2000

var (
	valueKey    = lua.Key("limit", named("p", "r", "k"))
	returnedKey = lua.ReturnedKey("limit", named("p", "r", "k"))
	otherKey    = lua.Key("limit", named("p", "r", "other"))
)

// stored is what a key and that of what was given back hold.
type stored struct {
	form        uint8
	value, back []byte
	at          int64 // when it was stored
}

func (s *stored) charge(cost int64) core.Charge {
	return core.Charge{Rule: "r", Key: "k", Cost: cost, ID: 7, Quota: quotasOfAllForms[int(s.form)%len(quotasOfAllForms)]}
}

// storedByTheStore returns one for each form. What is given back is from before
// the last charge, as the buckets have nothing to remember otherwise.
func storedByTheStore(t testing.TB, client *redis.Client) (all []stored) {
	ctx := t.Context()
	store := New(client, &patient)
	for form := range quotasOfAllForms {
		deleteStates(t, client)
		s := stored{form: uint8(form)}
		c := s.charge(2)
		const more = 130 // than a string has
		if c.Quota.Limit == limitOfRings {
			c.Cost += more
		}
		d := must.Get(storetest.Take(ctx, store, "p", []core.Charge{c}))(t)
		require.True(t, d.Allowed)
		s.at = d.At
		last := must.Get(storetest.Take(ctx, store, "p", []core.Charge{s.charge(1)}))(t)
		require.True(t, last.Allowed)
		if c.Cost > more { // a short ring
			c.Cost = more
			given := must.Get(storetest.Return(ctx, store, "p", []core.Return{{Charge: c, At: d.At}}))(t)
			require.Equal(t, []int64{more}, given)
			require.Contains(t, "cd", client.GetRange(ctx, valueKey, 0, 0).Val())
		}
		s.value = []byte(client.Get(ctx, valueKey).Val())
		if c.Quota.Algorithm != core.Concurrency {
			o := d.Outcomes()[0]
			c.Cost = 1
			must.Get(storetest.Return(ctx, store, "p", []core.Return{{Charge: c, At: d.At, Remaining: o.Remaining, ResetAfter: o.ResetAfter}}))(t)
			s.back = []byte(client.Get(ctx, returnedKey).Val())
		}
		if a := c.Quota.Algorithm; a == core.TokenBucket || a == core.LeakyBucket {
			require.True(t, lua.IsState('g', int64(len(s.back))), "%v", a)
		}
		require.True(t, lua.IsState(s.value[0], int64(len(s.value))))
		all = append(all, s)
	}
	return all
}

// like gives bytes the form of others: the first byte, and a length that it has.
func like(others, b []byte) []byte {
	if len(others) == 0 {
		return b
	}
	b = append([]byte(nil), b...)
	if !lua.IsState(others[0], int64(len(b))) {
		b = append(b, make([]byte, len(others))...)[:len(others)]
	}
	b[0] = others[0]
	return b
}

// A scriptCall is a call of a script on the key of a charge.
type scriptCall struct {
	script *lua.Script
	keys   []string
	args   []any
	decode func([]int64) error
}

// everyCall returns all that can be asked about a charge.
func everyCall(c core.Charge, at int64) []scriptCall {
	const grace = 1
	c.Policy = "p"
	batch := [][]core.Ask{ask([]core.Charge{c})}
	rules := lua.NewRules("limit", batch[0])
	keys, args := rules.Encode("", grace, batch)
	calls := []scriptCall{{rules.Script, keys, args, func(reply []int64) (of error) {
		if err := rules.Decode(reply, batch, func(_ int, err error) { of = err }); err != nil {
			return err
		}
		return of
	}}}
	if rules.One != nil {
		decode := calls[0].decode
		calls = append(calls, scriptCall{rules.One, keys, args, func(reply []int64) error {
			if lua.Left(reply) {
				return fmt.Errorf("%w: %s is left to another script", lua.ErrValue, valueKey)
			}
			return decode(reply)
		}})
	}
	if c.Quota.Algorithm != core.Concurrency {
		r := lua.NewReturns("limit", "", grace, []core.Return{{Charge: c, At: at, Remaining: 3, ResetAfter: 60_000_000}}, false)
		return append(calls, scriptCall{r.Script, r.Keys, r.Args, func(reply []int64) error {
			_, err := r.Decode(reply)
			return err
		}})
	}
	leases := []core.Charge{c, c}
	leases[1].ID++
	for _, renew := range []bool{true, false} {
		keys, args, order := lua.EncodeLeases("limit", "", grace, renew, leases)
		calls = append(calls, scriptCall{lua.LeaseScript(), keys, args, func(reply []int64) error {
			_, err := lua.DecodeLeases(reply, order, "limit", leases)
			return err
		}})
	}
	return calls
}

// everyCallAnswers makes every call on what is stored, in one round trip. Each
// is answered, or is an error that names the key and has changed nothing, and no
// other key is touched.
func everyCallAnswers(t *testing.T, client *redis.Client, s stored, cost, at int64) {
	ctx := context.Background()
	type result struct {
		call                      scriptCall
		reply                     *redis.Cmd
		values                    *redis.SliceCmd
		valueExpires, backExpires *redis.DurationCmd
		keys                      *redis.IntCmd
	}
	var results []result
	pipe := client.Pipeline()
	for _, call := range everyCall(s.charge(cost), at) {
		pipe.Set(ctx, valueKey, s.value, time.Hour)
		pipe.Set(ctx, returnedKey, s.back, time.Hour)
		results = append(results, result{call, pipe.EvalSha(ctx, call.script.SHA, call.keys, call.args...),
			pipe.MGet(ctx, valueKey, returnedKey, otherKey), pipe.PTTL(ctx, valueKey), pipe.PTTL(ctx, returnedKey), pipe.DBSize(ctx)})
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, r := range results {
		reply, err := r.reply.Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		values := r.values.Val()
		if err := r.call.decode(reply); err != nil {
			if !errors.Is(err, lua.ErrValue) || !strings.Contains(err.Error(), valueKey) {
				t.Fatal(err)
			}
			if !strings.Contains(err.Error(), "makes no sense") && (values[0] != string(s.value) || values[1] != string(s.back)) {
				t.Fatalf("an error changes nothing: %q", values)
			}
		}
		if values[2] != "theirs" || r.keys.Val() > 3 {
			t.Fatalf("%d keys, and %q", r.keys.Val(), values)
		}
		if r.valueExpires.Val() == -1 || r.backExpires.Val() == -1 {
			t.Fatalf("a key never expires: %q", values)
		}
	}
}

// clientForValues returns a client of a server that knows all scripts and holds
// a key that is none of the caller's.
func clientForValues(t testing.TB) (*redis.Client, []stored) {
	client := redistest.Client(t)
	all := storedByTheStore(t, client)
	for _, s := range all {
		for _, call := range everyCall(s.charge(1), s.at) {
			require.NoError(t, client.ScriptLoad(t.Context(), call.script.Text).Err())
		}
	}
	require.NoError(t, client.FlushDB(t.Context()).Err())
	require.NoError(t, client.Set(t.Context(), otherKey, "theirs", 0).Err())
	return client, all
}

// FuzzValue puts bytes of any kind in the place of a stored state and of what
// was given back. About half have the form that is expected there.
func FuzzValue(f *testing.F) {
	client, all := clientForValues(f)
	for _, s := range all {
		f.Add(true, s.form, s.value, s.back, int64(1), s.at)
		f.Add(false, s.form, s.value, s.back, int64(1), s.at)
	}
	f.Fuzz(func(t *testing.T, fits bool, form uint8, value, back []byte, cost, at int64) {
		if fits {
			expected := all[int(form)%len(all)]
			value, back = like(expected.value, value), like(expected.back, back)
		}
		everyCallAnswers(t, client, stored{form: form, value: value, back: back}, max(0, cost%8), max(0, at%core.MaxTime))
	})
}

// TestLengths gives what is stored every length that it does not have, under
// every quota of its algorithm.
func TestLengths(t *testing.T) {
	race.Skip(t)
	const most = 160 // more than any of them has
	client, all := clientForValues(t)
	for _, s := range all {
		for size := range most {
			long := func(b []byte) []byte { return []byte((string(b) + strings.Repeat("\x00", most))[:size]) }
			everyCallAnswers(t, client, stored{form: s.form, value: s.value, back: long(s.back)}, 1, s.at)
			for form, q := range quotasOfAllForms {
				if q.Algorithm == quotasOfAllForms[s.form].Algorithm {
					everyCallAnswers(t, client, stored{form: uint8(form), value: long(s.value), back: s.back}, 1, s.at)
				}
			}
		}
	}
}

package redisstore

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

var secret = []byte("0123456789abcdef")

// TestNoKeyLeaves looks for the keys of charges in the commands, data and errors of
// each operation of a store with a Secret.
func TestNoKeyLeaves(t *testing.T) {
	const alice = "alice@example.org"
	client := redistest.Client(t)
	var mu sync.Mutex // checks run beside the calls
	var sent strings.Builder
	before(client, every, func(cmd redis.Cmder) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&sent, "%s\n", cmd.Args())
	})
	o := patient
	o.Secret = secret
	store := New(client, &o)
	look := func(after string) {
		t.Helper()
		var all strings.Builder
		keys := client.Scan(t.Context(), 0, "*", 1000).Iterator()
		for keys.Next(t.Context()) {
			value := must.Get(client.Get(t.Context(), keys.Val()).Result())(t)
			fmt.Fprintf(&all, "%s %s\n", keys.Val(), value)
			name, ok := lua.ParseKey("limit", keys.Val())
			require.True(t, ok, "limitctl doctor knows %s", keys.Val())
			assert.Equal(t, "p", name.Policy)
		}
		require.NoError(t, keys.Err())
		mu.Lock()
		defer mu.Unlock()
		for _, text := range []string{sent.String(), all.String()} {
			assert.NotContains(t, text, "alice", after)
			assert.NotContains(t, text, "example", after)
		}
	}
	charges := everyAlgorithm(alice)
	list := admit(t, store, "p", charges)
	look("Take")
	require.NotZero(t, client.DBSize(t.Context()).Val())
	for i := range list {
		list[i].Cost = 1
	}
	given := must.Get(storetest.Return(t.Context(), store, "p", list))(t)
	assert.EqualValues(t, 1, given[0], "what was taken is found again")
	look("Return")
	lease := []core.Charge{{Rule: "leases", Key: alice, Cost: 1, ID: 7,
		Quota: core.Quota{Algorithm: core.Concurrency, Limit: 2, Window: 3600_000_000}}}
	storetest.MustTake(t, store, lease...)
	held := must.Get(storetest.Renew(t.Context(), store, "p", lease))(t)
	assert.Equal(t, []bool{true}, held)
	look("Renew")
	require.NoError(t, storetest.Release(t.Context(), store, "p", lease))
	look("Release")
	for _, c := range charges {
		require.NoError(t, storetest.Reset(t.Context(), store, "p", c.Rule, c.Key))
	}
	look("Reset")
	assert.Empty(t, client.Keys(t.Context(), "limit:1:{*").Val(), "Reset and Release find what Take has made")
	assert.Empty(t, client.Keys(t.Context(), "limit:1:returned:*").Val())
	assert.Equal(t, alice, charges[0].Key, "the caller's charges stay as they are")
	assert.Equal(t, alice, lease[0].Key)

	// Errors about a key, which say which.
	key := lua.Key("limit", named("p", "leases", store.hasher.hash("p", "leases", alice)))
	require.NoError(t, client.Set(t.Context(), key, "nonsense", 0).Err())
	_, err := storetest.Take(t.Context(), store, "p", lease)
	require.ErrorIs(t, err, lua.ErrValue)
	assert.ErrorContains(t, err, key)
	assert.NotContains(t, err.Error(), "alice")
	_, err = storetest.Renew(t.Context(), store, "p", lease)
	require.ErrorIs(t, err, lua.ErrValue)
	assert.NotContains(t, err.Error(), "alice")
	key = lua.Key("limit", named("p", list[0].Rule, store.hasher.hash("p", list[0].Rule, alice)))
	require.NoError(t, client.Set(t.Context(), key, "nonsense", 0).Err())
	_, err = storetest.Return(t.Context(), store, "p", list[:1])
	require.ErrorIs(t, err, lua.ErrValue)
	assert.NotContains(t, err.Error(), "alice")
}

// TestSecrets holds that a key has one hash for each secret, policy and rule, in all
// stores.
func TestSecrets(t *testing.T) {
	a, again := newKeyHasher(secret), newKeyHasher(append([]byte(nil), secret...))
	other := newKeyHasher([]byte("0123456789abcdeg"))
	id := a.hash("p", "r", "k")
	assert.Equal(t, id, again.hash("p", "r", "k"))
	assert.Equal(t, "kPrfjYsVyw2_5yPNtPsEVg", id, "as by any implementation of HMAC: the stored format does not change")
	for _, different := range []string{other.hash("p", "r", "k"), a.hash("q", "r", "k"), a.hash("p", "s", "k"), a.hash("p", "r", "l"), a.hash("p", "rk", ""), "k"} {
		assert.NotEqual(t, id, different)
	}
	assert.Empty(t, a.hash("p", "r", ""), "the key that all clients share")
	assert.Equal(t, "k", newKeyHasher(nil).hash("p", "r", "k"))

	mine := append([]byte(nil), secret...)
	own := newKeyHasher(mine)
	clear(mine)
	assert.Equal(t, id, own.hash("p", "r", "k"), "the store has a copy")
}

func TestShortSecret(t *testing.T) {
	client := redistest.Closing(t, redis.NewClient(&redis.Options{}))
	for _, short := range []string{"", "0123456789abcde"} {
		assert.PanicsWithValue(t, fmt.Sprintf("redisstore: Secret has %d bytes: write at least 16 random ones, such as the output of `openssl rand -hex 32`", len(short)),
			func() { New(client, &Options{Secret: []byte(short)}) })
	}
	assert.NotPanics(t, func() { New(client, &Options{Secret: secret}) })
}

// FuzzKeyHashes holds that different keys have different hashes, which need no
// escapes in a Redis key.
func FuzzKeyHashes(f *testing.F) {
	f.Add("p", "r", "k", "pr", "", "k")
	f.Add("p", "r", "k", "p", "r", "k")
	f.Add("p", "r", "kk", "p", "rk", "k")
	f.Add("\x01", "a", "b", "", "\x01a", "b")
	hasher := newKeyHasher(secret)
	f.Fuzz(func(t *testing.T, p1, r1, k1, p2, r2, k2 string) {
		one, two := hasher.hash(p1, r1, k1), hasher.hash(p2, r2, k2)
		if k1 == "" || k2 == "" {
			return
		}
		if p1 == p2 && r1 == r2 && k1 == k2 {
			require.Equal(t, one, two)
		} else {
			require.NotEqual(t, one, two)
		}
		require.True(t, strings.HasSuffix(lua.Key("limit", named(p1, r1, one)), ":"+one), "it needs no escapes")
	})
}

func BenchmarkKeyHash(b *testing.B) {
	hasher := newKeyHasher(secret)
	b.ReportAllocs()
	for b.Loop() {
		hasher.hash("POST /update", "per-ip-2s", "203.0.113.9")
	}
}

package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

// TestDropsExpired lets many keys come and go. Memory must follow the keys that are partly used.
func TestDropsExpired(t *testing.T) {
	race.Skip(t)
	const arrivals = 200_000
	for _, live := range []int64{100, 10_000} {
		t.Run(fmt.Sprint(live), func(t *testing.T) {
			s, now := at(1_000_000)
			q := core.Quota{Limit: 1, Window: 100 * live}
			most := 0
			for i := range arrivals {
				now.Add(100)
				take(t, s, core.Charge{Key: fmt.Sprint(i), Quota: q, Cost: 1})
				most = max(most, s.shards[0].keys.len) // all fill alike
			}
			n, buckets := s.entries(), 0
			for i := range s.shards {
				keys := &s.shards[i].keys
				buckets += cap(keys.buckets)
				if len(keys.buckets) > 2*keys.len+1 {
					t.Errorf("shard %d: %d buckets for %d entries", i, len(keys.buckets), keys.len)
				}
			}
			t.Logf("%d entries, at most %d in a shard, room for %d", n, most, buckets)
			if bound := 2*int(live) + 4*shards; n > bound || buckets > 4*bound {
				t.Errorf("%d entries in memory, room for %d; %d are live", n, buckets, live)
			}
		})
	}
}

// TestDropsAfterFlood checks that the memory of a flood is freed as ordinary traffic goes on.
func TestDropsAfterFlood(t *testing.T) {
	race.Skip(t)
	s, now := at(1_000_000)
	q := core.Quota{Limit: 1, Window: 1_000}
	arrive := func(name string, n int) {
		for i := range n {
			take(t, s, core.Charge{Key: fmt.Sprint(name, i), Quota: q, Cost: 1})
		}
	}
	arrive("flood", 100_000)
	if n := s.entries(); n != 100_000 {
		t.Fatalf("%d entries, want 100000", n)
	}
	for i := range 60 {
		now.Add(1_000)
		arrive(fmt.Sprint("later", i), 1_000)
	}
	room := 0
	for i := range s.shards {
		room += cap(s.shards[i].keys.buckets)
	}
	if n := s.entries(); n > 5_000 || room > 20_000 {
		t.Errorf("%d entries and room for %d after the flood, of which 1000 are live", n, room)
	}
}

// TestKeepsWhatIsLive checks that no flood of other keys makes the store drop a key that is
// partly used.
func TestKeepsWhatIsLive(t *testing.T) {
	s, now := at(1_000_000)
	long, brief := core.Quota{Limit: 1, Window: 50_000_000}, core.Quota{Limit: 1, Window: 1_000}
	const kept = 500
	for i := range kept {
		take(t, s, core.Charge{Rule: "long", Key: fmt.Sprint(i), Quota: long, Cost: 1})
	}
	for i := range 49_999 {
		now.Add(1_000)
		take(t, s, core.Charge{Rule: "brief", Key: fmt.Sprint(i), Quota: brief, Cost: 1})
	}
	for i := range kept {
		if take(t, s, core.Charge{Rule: "long", Key: fmt.Sprint(i), Quota: long, Cost: 1}).Allowed {
			t.Fatalf("key %d was dropped", i)
		}
	}
	now.Add(1_000)
	if !take(t, s, core.Charge{Rule: "long", Key: "0", Quota: long, Cost: 1}).Allowed {
		t.Error("refused after its window")
	}
}

// TestKeepsWhatTheDecisionCharged has new keys beside keys that were full until this very
// decision charged them. The sweep comes in between.
func TestKeepsWhatTheDecisionCharged(t *testing.T) {
	s, now := at(1_000_000)
	q := core.Quota{Limit: 1, Window: 1_000}
	for i := range 3_000 {
		now.Add(5_000)
		old := core.Charge{Rule: "old", Key: fmt.Sprint(i % 100), Quota: q, Cost: 1}
		d := take(t, s, core.Charge{Rule: "new", Key: fmt.Sprint(i), Quota: q, Cost: 1}, old)
		if again := take(t, s, old); !d.Allowed || again.Allowed {
			t.Fatalf("decision %d: allowed %v, then %v", i, d.Allowed, again.Allowed)
		}
	}
}

// TestKeepsForLongerWindow checks that a look with a short window does not make the store lose
// units that count in a long one.
func TestKeepsForLongerWindow(t *testing.T) {
	s, now := at(1_000_000)
	long, brief := core.Quota{Limit: 1, Window: 1_000_000}, core.Quota{Limit: 1, Window: 1_000}
	take(t, s, core.Charge{Rule: "r", Quota: long, Cost: 1})
	take(t, s, core.Charge{Rule: "r", Quota: brief})
	for i := range 10_000 {
		now.Add(50)
		take(t, s, core.Charge{Rule: "others", Key: fmt.Sprint(i), Quota: brief, Cost: 1})
	}
	if take(t, s, core.Charge{Rule: "r", Quota: long, Cost: 1}).Allowed {
		t.Error("dropped because of the short window")
	}
}

// TestStoresNothing checks that charges that take nothing leave nothing in memory.
func TestStoresNothing(t *testing.T) {
	s, _ := at(1_000_000)
	one := core.Quota{Limit: 1, Window: 1_000_000}
	take(t, s, core.Charge{Rule: "global", Quota: one, Cost: 1})
	for i := range 1_000 {
		key := fmt.Sprint(i)
		take(t, s, core.Charge{Rule: "ip", Key: key, Quota: one})
		take(t, s, core.Charge{Rule: "ip", Key: key, Quota: one, Cost: 2})
		take(t, s, core.Charge{Rule: "ip", Key: key, Quota: one, Cost: 1}, core.Charge{Rule: "global", Quota: one, Cost: 1})
		_, _ = storetest.Take(context.Background(), s, "policy", []core.Charge{{Rule: "ip", Key: key, Quota: one, Cost: -1}})
	}
	if n := s.entries(); n != 1 {
		t.Errorf("%d entries, want 1", n)
	}
}

// TestTable compares a table with a map, through growth and decline, and with
// hashes that collide.
func TestTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var keys table
	known := make(map[string]*entry)
	now := int64(0)
	for i := range 60_000 {
		now += int64(1 + i/20_000*30) // at last, most entries are dead
		c := core.Charge{Policy: "policy", Rule: "rule", Key: strings.Repeat("a key ", i%4) + fmt.Sprint(i)}
		e := allocate(core.SlidingLog, c.Key, nil)
		e.expires = now + 1 + random.Int64N(6_000)
		hash := random.Uint32N(40_000)
		e.name(hash, &c)
		keys.insert(e, now)
		known[c.Key] = e
		if i%997 == 0 {
			checkTable(t, &keys, known, now)
		}
	}
}

// TestSameHash tells entries apart by every part of their names. A key has one entry,
// whatever its algorithm.
func TestSameHash(t *testing.T) {
	var keys table
	names := []core.Charge{
		{Policy: "policy", Rule: "rule", Key: "key"},
		{Policy: "policy", Rule: "rule"},
		{Policy: "policy", Key: "key"},
		{Rule: "rule", Key: "key"},
		{Policy: "policy", Rule: "rule", Variant: "v", Key: "key"},
		{Policy: "policy", Rule: "rulev", Key: "key"},
		{Policy: "polic", Rule: "yrule", Key: "key"},
		{Policy: "policy", Rule: "rul", Key: "ekey"},
	}
	for i, n := range names {
		if e := keys.find(&target{charge: &n, hash: 7}); e != nil {
			t.Errorf("%+v is taken for %q %q", n, e.rule.Value(), e.key())
		}
		e := allocate(n.Quota.Algorithm, n.Key, nil)
		e.expires = int64(i + 1)
		e.name(7, &n)
		keys.insert(e, 0)
	}
	for i, n := range names {
		if e := keys.find(&target{charge: &n, hash: 7}); e == nil || e.expires != int64(i+1) {
			t.Errorf("%+v: found %+v", n, e)
		}
	}
	window := names[0]
	if window.Quota.Algorithm = core.FixedWindow; keys.find(&target{charge: &window, hash: 7}) != keys.find(&target{charge: &names[0], hash: 7}) {
		t.Error("a key has an entry for each algorithm")
	}
}

// TestSize keeps a key of the default algorithm in one object of 112 bytes, a size
// that the Go runtime allocates. The next one is 128.
func TestSize(t *testing.T) {
	if size := max(unsafe.Sizeof(logEntry{}), unsafe.Sizeof(longLogEntry{})); unsafe.Sizeof(uintptr(0)) == 8 && size > 112 {
		t.Errorf("an entry has %d bytes", size)
	}
}

// TestSweepIsBounded counts the work of a sweep instead of timing it: what expires at
// once is dropped by many insertions, a few entries each.
func TestSweepIsBounded(t *testing.T) {
	const keys, most = 4_000, 64 // a shard of a store of a million keys
	var table table
	insert := func(i int, now int64) {
		e := allocate(core.SlidingLog, "", nil)
		e.expires = now + 1
		random := rand.New(rand.NewPCG(1, uint64(i)))
		e.name(random.Uint32(), &core.Charge{Policy: "policy", Rule: "rule", Key: fmt.Sprint(i)})
		table.insert(e, now)
	}
	for i := range keys {
		insert(i, 0)
	}
	for i := range keys {
		before, buckets := table.len, len(table.buckets)
		insert(keys+i, 1)
		if dropped, joined := before+1-table.len, buckets-len(table.buckets); dropped > most || joined > 2*most {
			t.Fatalf("one insertion drops %d entries and joins %d buckets", dropped, joined)
		}
	}
	if table.len > keys+1 {
		t.Errorf("%d entries, of which %d are live", table.len, keys)
	}
}

func checkTable(t *testing.T, keys *table, known map[string]*entry, now int64) {
	t.Helper()
	found := 0
	for key, e := range known {
		got := keys.find(&target{charge: &core.Charge{Policy: "policy", Rule: "rule", Key: key}, hash: e.hash})
		switch {
		case got == e:
			found++
		case got != nil:
			t.Fatalf("found %q, looked for %q", got.key(), key)
		case e.expires > now:
			t.Fatalf("lost %q, which expires at %d, at %d", key, e.expires, now)
		default:
			delete(known, key)
		}
	}
	if found != keys.len || keys.len > len(keys.buckets) || len(keys.buckets) > 2*keys.len+1 {
		t.Fatalf("found %d of %d entries in %d buckets", found, keys.len, len(keys.buckets))
	}
}

// TestShortEntries tests that the key is part of an entry only where the entry has room for it, also
// after the algorithm of its rule has changed: elsewhere its bytes would be taken for a pointer.
func TestShortEntries(t *testing.T) {
	for _, n := range []int{0, 1, maxShort - 1, maxShort, maxShort + 1} {
		s, _ := at(1_000_000)
		key, buffer := strings.Repeat("\x00", n), make([]byte, n)
		for _, a := range []core.Algorithm{core.SlidingLog, core.FixedWindow, core.SlidingLog} {
			clear(buffer)
			take(t, s, core.Charge{Rule: "rule", Key: unsafe.String(unsafe.SliceData(buffer), n), Cost: 1,
				Quota: core.Quota{Algorithm: a, Limit: 5, Window: 1_000_000}})
			for i := range buffer {
				buffer[i] = 'x' // as a framework that uses its buffers again
			}
			if keys := s.Keys(&core.Charge{Policy: "policy", Rule: "rule"}); len(keys) != 1 || keys[0] != key {
				t.Errorf("keys %q of %d bytes", keys, n)
			}
			for i := range s.shards {
				for _, e := range s.shards[i].keys.buckets {
					if want := n <= maxShort && e != nil && e.algorithm == core.SlidingLog; e != nil && e.short != want {
						t.Errorf("a key of %d bytes, algorithm %d: short is %v", n, e.algorithm, e.short)
					}
				}
			}
		}
	}
}

package redisstore

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
)

var writeState = flag.Bool("write-state", false, "write testdata/state-1.jsonl anew: only before the first release of a version of keys")

// An oldState is what a release has left in Redis, and what it would have decided next.
type oldState struct {
	Charges []core.Charge     // of every call
	Values  map[string][]byte // by key of Redis
	Return  *core.Return      `json:",omitempty"` // of the first admission
	Given   int64             `json:",omitempty"` // back by it
	Held    bool              `json:",omitempty"` // whether the lease was still held
	Next    []oldDecision
}

type oldDecision struct {
	At       int64
	Allowed  bool
	Delay    int64 `json:",omitempty"`
	Outcomes []core.Outcome
}

// TestOldState reads what each version of keys has left in Redis, for every algorithm
// and form, and decides as the release that wrote it: see COMPATIBILITY.md.
func TestOldState(t *testing.T) {
	client := redistest.Client(t)
	if *writeState {
		write(t, client, "testdata/state-1.jsonl")
	}
	text := must.Get(os.ReadFile("testdata/state-1.jsonl"))(t)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var seen []core.Algorithm
	for decoder.More() {
		var s oldState
		require.NoError(t, decoder.Decode(&s))
		for _, c := range s.Charges {
			seen = append(seen, c.Quota.Algorithm)
		}
		require.NoError(t, client.FlushDB(t.Context()).Err())
		for key, value := range s.Values {
			require.NoError(t, client.Set(t.Context(), key, value, time.Hour).Err())
		}
		want := s
		s.decide(t, client)
		assert.Equal(t, want, s, "%+v", s.Charges[0].Quota)
	}
	for _, a := range core.Algorithms() {
		assert.Contains(t, seen, a)
	}
}

// decide makes the calls that follow, and keeps what the store says.
func (s *oldState) decide(t *testing.T, client *redis.Client) {
	q := s.Charges[0].Quota
	now := start + q.Window/2
	store := at(client, &now)
	if s.Return != nil {
		given := must.Get(store.Return(t.Context(), []core.Return{*s.Return}))(t)
		s.Given = given[0].Units
	}
	if q.Leases() {
		held := must.Get(store.Renew(t.Context(), s.Charges))(t)
		s.Held = held[0]
		s.Charges[0].ID++
		defer func() { s.Charges[0].ID-- }()
	}
	s.Next = nil
	for _, now = range []int64{start + q.Window/2, start + q.Window, start + q.Window + q.Window/4, start + 3*q.Window} {
		d := must.Get(core.Take(t.Context(), store, s.Charges))(t)
		s.Next = append(s.Next, oldDecision{d.At, d.Allowed, d.Delay, slices.Clone(d.Outcomes())})
	}
}

// write has the current scripts leave their state, and writes the fixture.
func write(t *testing.T, client *redis.Client, name string) {
	var text bytes.Buffer
	for _, q := range quotasOfAllForms {
		require.NoError(t, client.FlushDB(t.Context()).Err())
		s := oldState{Charges: []core.Charge{{Policy: "p", Rule: "r", Key: "k", Quota: q, Cost: 2, ID: 7}}, Values: make(map[string][]byte)}
		if q.Bars() { // strikes are refusals by another rule
			s.Charges = append(s.Charges, core.Charge{Policy: "p", Rule: "other", Key: "k", Quota: core.Quota{Limit: 1, Window: q.Window}, Cost: 1})
		}
		if q.Limit > 1000 {
			s.Charges[0].Cost = 140 // more than a string has
		}
		now := start
		store := at(client, &now)
		for i := range int64(4) {
			now = start + i*q.Window/16
			d := must.Get(core.Take(t.Context(), store, s.Charges))(t)
			if i == 0 && !q.Leases() {
				require.True(t, d.Allowed)
				back := d.Return(0, s.Charges[0])
				back.Cost = 1
				s.Return = &back
			}
		}
		if s.Return != nil { // once before, so that what was given back is there too
			must.Get(store.Return(t.Context(), []core.Return{*s.Return}))(t)
		}
		for _, c := range s.Charges {
			for _, key := range []string{lua.Key("limit", &c), lua.ReturnedKey("limit", &c)} {
				if value, err := client.Get(t.Context(), key).Bytes(); err == nil {
					s.Values[key] = value
				}
			}
		}
		require.NotEmpty(t, s.Values)
		s.decide(t, client)
		require.NoError(t, json.NewEncoder(&text).Encode(s))
	}
	require.NoError(t, os.WriteFile(name, text.Bytes(), 0o644))
}

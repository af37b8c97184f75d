package feed

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/operate"
)

// TestEncode checks that a message is bounded, that refused requests come first, and that
// the fields are those of Batch.
func TestEncode(t *testing.T) {
	var events []Event
	for i := range 200 {
		e := Event{At: time.UnixMilli(int64(i)).UTC(), Policy: "p", Allowed: i < 100, Outcome: "x", Mode: "exact"}
		for n := range 16 {
			e.Rules = append(e.Rules, Rule{Name: fmt.Sprint("rule", n), Key: strings.Repeat("\x00", 128), Limit: 1 << 60})
		}
		events = append(events, e)
	}
	text := encode("host\"\x00", events, [2]int64{1, 2})
	assert.LessOrEqual(t, len(text), maxMessage)
	assert.Greater(t, len(text), maxMessage/2)
	var batch Batch
	require.NoError(t, json.Unmarshal(text, &batch))
	assert.Equal(t, "host\"\x00", batch.Instance)
	assert.EqualValues(t, 102, batch.Admitted)
	assert.EqualValues(t, 101, batch.Refused+int64(len(batch.Events)))
	for _, e := range batch.Events {
		assert.Equal(t, events[e.At.UnixMilli()], e)
	}

	require.NoError(t, json.Unmarshal(encode("a", events[99:101], [2]int64{}), &batch))
	assert.Equal(t, events[99:101], batch.Events)
	require.NoError(t, json.Unmarshal(encode("a", nil, [2]int64{}), &batch))
	assert.Empty(t, batch.Events)
}

// TestSlots checks how many decisions are noted in each second.
func TestSlots(t *testing.T) {
	for _, each := range []int64{0, 1, 3, 10, 99, 100, 1000} {
		k := kind{each: each}
		noted := int64(0)
		for range 30 * ticks { // half a minute in which there is always one more
			k.refill()
			noted += k.slots
			k.slots = 0
		}
		assert.Equal(t, 30*each, noted, "%d a second", each)
		for range 10 * ticks { // nothing is saved up
			k.refill()
		}
		assert.Equal(t, (each+ticks-1)/ticks, k.slots)
	}
}

// BenchmarkDecision shows what the feed adds to a decision in memory: without a
// subscriber; with one, of a decision that is left out, as almost all are if there are
// many; and of one that is published.
func BenchmarkDecision(b *testing.B) {
	for _, name := range []string{"no subscriber", "left out", "published"} {
		b.Run(name, func(b *testing.B) {
			limiter := limit.New(nil, nil)
			p := &publisher{limiter: limiter, options: &Options{}}
			if name != "no subscriber" {
				operate.Observe(limiter, func(r *http.Request, d limit.Decision, err error) {
					p.observe(r, d, err)
					if len(p.events) == 100 {
						p.events = p.events[:0]
					}
				})
			}
			if name == "published" {
				p.kinds[refused].slots, p.kinds[admitted].slots = 1<<60, 1<<60
			}
			policy := must.Get(limiter.Policy(limit.Named("p", limit.PerUser(time.Hour, 1000), limit.Global(time.Hour, 1000))))(b)
			request := limit.Request{Keys: map[string]string{"user": "alice"}}
			b.ReportAllocs()
			for b.Loop() {
				policy.Take(b.Context(), request)
			}
		})
	}
}

// BenchmarkEncode writes the batch of a tick in which as many requests are refused and
// admitted as are published.
func BenchmarkEncode(b *testing.B) {
	events := make([]Event, 110)
	for i := range events {
		events[i] = Event{At: time.Now().UTC(), Policy: "POST /login", Method: "POST", Outcome: "refused", Mode: "exact"}
		if i < 100 {
			events[i].Rules = []Rule{{Name: "per-ip-1m", Key: "203.0.113.9", Limit: 5, WindowMS: 60_000, RetryAfterMS: 12_000}}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		b.ReportMetric(float64(len(encode("web", events, [2]int64{}))), "bytes")
	}
}

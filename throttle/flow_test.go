package throttle_test

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// A flow is bytes and when they passed.
type flow struct {
	mu     sync.Mutex
	start  time.Time
	pieces []piece
}

type piece struct {
	at    time.Duration
	bytes int
}

func newFlow() *flow { return &flow{start: time.Now()} }

func (f *flow) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pieces = append(f.pieces, piece{time.Since(f.start), n})
}

// by returns how many bytes had passed by a time, those at that time included.
func (f *flow) by(at time.Duration) (sum int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pieces {
		if p.at <= at {
			sum += p.bytes
		}
	}
	return sum
}

// within checks that no more has passed at any time than a bucket allows that
// was whole at the start.
func (f *flow) within(t *testing.T, burst int, rate float64) {
	t.Helper()
	pieces := slices.Clone(f.pieces)
	slices.SortFunc(pieces, func(a, b piece) int { return cmp.Compare(a.at, b.at) })
	sum := 0
	for _, p := range pieces {
		sum += p.bytes
		if most := float64(burst) + rate*p.at.Seconds() + 1e-6; float64(sum) > most {
			t.Fatalf("%d bytes had passed at %v: more than %.0f", sum, p.at, most)
		}
	}
}

// A recorder is a response that counts when its bytes came.
type recorder struct {
	*flow
	header http.Header
}

func (r recorder) Header() http.Header { return r.header }
func (r recorder) WriteHeader(int)     {}
func (r recorder) Write(p []byte) (int, error) {
	r.add(len(p))
	return len(p), nil
}

// download calls a handler for a user.
func (f *flow) download(ctx context.Context, h http.Handler, user string) {
	r := httptest.NewRequest("GET", "/file", nil).WithContext(ctx)
	r.Header.Set("X-User", user)
	h.ServeHTTP(recorder{f, http.Header{}}, r)
}

// writes answers with so many bytes, in writes of a size.
func writes(t *testing.T, total, size int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := make([]byte, size)
		for left := total; left > 0; left -= size {
			n, err := w.Write(p[:min(size, left)])
			assert.NoError(t, err)
			assert.Equal(t, min(size, left), n)
		}
	})
}

// A countingStore counts how often it is asked, and is out of reach when it is
// told to.
type countingStore struct {
	core.Store
	asked atomic.Int64
	fails atomic.Bool
	stall time.Duration // before it fails
}

func (s *countingStore) Take(ctx context.Context, asks []core.Ask) error {
	s.asked.Add(1)
	if s.fails.Load() {
		time.Sleep(s.stall)
		return core.ErrUnavailable
	}
	return s.Store.Take(ctx, asks)
}

func byteLimiter(store core.Store) *limit.Limiter {
	return limit.New(store, &limit.Options{Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.Header.Get("X-User") }}})
}

// perUser is 100 kB a second for each user, and a tenth of that at once.
var perUser = limit.Rules(limit.Rule{Key: limit.ByUser, Limit: 100_000, Window: time.Second,
	Algorithm: limit.TokenBucket{Burst: 10_000}})

package limit_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/memstore"
)

// TestNotices has each thing that is logged happen again and again.
func TestNotices(t *testing.T) {
	perIP := limit.Rules(limit.PerIP(time.Hour, 1000))
	settled := limit.Global(time.Hour, 1000)
	settled.Settle = func(*http.Request, int) int64 { return -1 }
	for _, test := range []struct {
		name  string
		store core.Store
		rules []limit.RuleSet
		want  string
	}{
		{"a store that answers nonsense", failing{err: errors.New("nonsense")}, []limit.RuleSet{perIP},
			`level=WARN msg="limit: a request could not be decided" error="limit: could not decide: nonsense"`},
		{"a settlement that makes no sense", nil, []limit.RuleSet{limit.Rules(settled)},
			`level=WARN msg="limit: an admitted request could not be settled" error="limit: could not decide: rule \"global-1h\": settled: cost -1: write 0 or more"`},
		{"more keys than there is room for", full(t), []limit.RuleSet{perIP},
			`level=WARN msg="limit: more keys than MaxKeys: new ones share quotas" policy=<unmatched>`},
		{"two rule sets", nil, []limit.RuleSet{perIP, perIP},
			`level=WARN msg="limit: two rule sets charge one quota: give one of the rules another Name, or remove one" route=<unmatched> rule=per-ip-1h`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := new(logbook.Book)
				limiter := limit.New(test.store, &limit.Options{Log: book.Log()})
				serve := func() http.Handler {
					var h http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
					for _, rules := range test.rules {
						h = limiter.Limit(rules)(h)
					}
					return h
				}
				h := serve()
				request := func() {
					if len(test.rules) > 1 {
						h = serve() // what is declared is noticed once
					}
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				}
				request()
				require.Equal(t, []string{test.want}, book.Lines())
				for range 10 {
					request()
				}
				time.Sleep(time.Minute - 1)
				request()
				require.Empty(t, book.Lines())
				time.Sleep(time.Nanosecond)
				request()
				lines := book.Lines()
				require.Len(t, lines, 1)
				assert.True(t, strings.HasPrefix(lines[0], test.want+" skipped="), "%s", lines[0])
			})
		})
	}
}

// full returns a memory store that has no room for a new key.
func full(t *testing.T) core.Store {
	store := memstore.New(&memstore.Options{MaxKeys: 1})
	limiter := limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler)})
	rules := limit.Named("others", limit.Per(limit.ByHeader("X"), 24*time.Hour, 5))
	for i := range 20_000 { // so that no shard has room, but once in 10^30
		_, err := mustPolicy(limiter, rules).Take(t.Context(), limit.Request{Keys: limit.Keys{"header X": fmt.Sprint(i)}})
		require.NoError(t, err)
	}
	return store
}

// TestNoticesCostNothing holds that a decision that would have something logged, and
// comes too soon for it, allocates no more than one that has nothing to say.
func TestNoticesCostNothing(t *testing.T) {
	rules := limit.Named("p", limit.PerIP(time.Hour, 1000))
	keys := limit.Keys{"ip": "192.0.2.1"}
	allocations := func(store core.Store, mode limit.Mode) float64 {
		limiter := limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler)})
		return testing.AllocsPerRun(100, func() {
			d, err := mustPolicy(limiter, rules).Take(t.Context(), limit.Request{Keys: keys})
			if err != nil || d.Mode != mode {
				t.Fatal(d.Mode, err)
			}
		})
	}
	assert.Equal(t, allocations(memstore.New(nil), limit.ModeExact), allocations(full(t), limit.ModeOverflow))
}

// TestNoticeOfHandlers makes a limiter while a request is served, and before.
func TestNoticeOfHandlers(t *testing.T) {
	book := new(logbook.Book)
	options := &limit.Options{Log: book.Log()}
	limit.New(nil, options)
	assert.Empty(t, book.Lines())
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { limit.New(nil, options) })
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(handler)
		server.EnableHTTP2 = http2
		server.StartTLS()
		response, err := server.Client().Get(server.URL)
		require.NoError(t, err)
		response.Body.Close()
		assert.Equal(t, http2, response.ProtoMajor == 2)
		server.Close()
		assert.Equal(t, []string{`level=WARN msg="limit: New is called while a request is served: what a limiter of its own knows is forgotten with it: make one for the program"`}, book.Lines())
	}
}

func TestDecisionLogValue(t *testing.T) {
	limiter := limit.New(nil, nil)
	rules := limit.Named("p", limit.Rule{Name: "r", Key: limit.Everyone, Limit: 1, Window: time.Hour, Algorithm: limit.Queue, Burst: 2})
	book := new(logbook.Book)
	for range 4 {
		d, err := mustPolicy(limiter, rules).Take(t.Context(), limit.Request{Keys: limit.Keys{}})
		require.NoError(t, err)
		book.Log().Info("took", "decision", d)
	}
	book.Log().Info("none", "decision", limit.Decision{})
	lines := book.Lines()
	require.Len(t, lines, 5)
	assert.Equal(t, `level=INFO msg=took decision.policy=p decision.allowed=true decision.mode=exact`, lines[0])
	assert.Regexp(t, `^level=INFO msg=took decision.policy=p decision.allowed=true decision.mode=exact decision.delay=59m59\.\d+s$`, lines[1])
	assert.Regexp(t, `^level=INFO msg=took decision.policy=p decision.allowed=false decision.mode=exact decision.refusing=\[r\] decision.retry_after=`, lines[3])
	assert.Equal(t, `level=INFO msg=none decision.policy="" decision.allowed=false decision.mode=exact decision.refusing=[] decision.retry_after=0s`, lines[4])
}

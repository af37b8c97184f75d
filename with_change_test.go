package limit_test

import (
	"fmt"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/operate"
)

// TestWithChanges changes the application's rules, and those of a set that is With it.
func TestWithChanges(t *testing.T) {
	l := limit.New(nil, nil)
	app := bound(t, l, application.Overridable())
	named := bound(t, l, limit.Named("named", limit.Global(time.Hour, 5)).With(application.Overridable()).Overridable())
	route := l.Limit(limit.Rules(limit.Global(time.Hour, 50)).With(limit.Named("app")))(ok200)
	assert.Equal(t, 200, sent(route, "/").Code)
	change := func(texts ...string) error {
		var sets []limit.RuleSet
		for i := 0; i < len(texts); i += 2 {
			sets = append(sets, limit.MustParse(texts[i+1]).Named(texts[i]))
		}
		return operate.Change(l, sets...)
	}
	require.NoError(t, change("app", "all: 2/1h global"))
	peeked := must.Get(operate.Peek(t.Context(), l, "<unmatched>", "all", "", ""))(t)
	assert.EqualValues(t, 2, peeked.Limit, "the tools see the rules of now")
	assert.Equal(t, 200, sent(route, "/").Code, "which keeps its state")
	assert.Equal(t, 429, sent(route, "/").Code)
	assert.Equal(t, []string{"all"}, take(t, named, 1))
	assert.Equal(t, []string{"all"}, take(t, app, 1))
	require.NoError(t, change("named", "4/1h global"), "which is alone, and app is as declared")
	assert.Nil(t, take(t, named, 4))
	assert.EqualValues(t, 8, left(t, l, "app", "all", ""))
	require.NoError(t, change("named", "7/1h global; with app; with more", "more", "1/1h global"))
	assert.Equal(t, []string{"more.global-1h"}, take(t, named, 2), "a set of the file alone")
	assert.Nil(t, take(t, named, 1))
	assert.EqualValues(t, 7, left(t, l, "app", "all", ""))

	assert.ErrorContains(t, change("named", "4/1h global; with more"), "with more: no policy has that name")
	assert.ErrorContains(t, change("app", "with named", "named", "with app"), "leave out one of the two")
	assert.ErrorContains(t, change("x", "with y", "y", "with x"), "leave out one of the two", "which nothing declares")
	assert.ErrorContains(t, change("app", "5/1m per user"), "no user resolver", "which the route lacks")
	var many []limit.Rule
	for i := range core.MaxCharges {
		many = append(many, limit.Global(time.Duration(i+1)*time.Second, 5))
	}
	assert.ErrorContains(t, operate.Change(l, limit.Named("app", many...)), "17 rules with those of app")
	assert.Equal(t, []string{"more.global-1h"}, take(t, named, 1), "nothing was changed")
	require.NoError(t, operate.Change(l))
	assert.EqualValues(t, 10, func() int64 {
		require.NoError(t, operate.Reset(t.Context(), l, "app", "all", ""))
		return left(t, l, "app", "all", "")
	}())
}

// TestWithChangesWhileServing changes the application's limit while requests are decided.
func TestWithChangesWhileServing(t *testing.T) {
	l := limit.New(nil, nil)
	bound(t, l, application.Overridable())
	each := l.Limit(limit.EachRoute(limit.Global(time.Hour, 1000)).With(limit.Named("app")))(ok200)
	var admitted atomic.Int64
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for n := range 200 {
				r := httptest.NewRequest("GET", "/", nil)
				r.Pattern = fmt.Sprint("/", i, "/", n%20)
				w := httptest.NewRecorder()
				if each.ServeHTTP(w, r); w.Code == 200 {
					admitted.Add(1)
				}
			}
		})
	}
	for n := range 50 {
		require.NoError(t, operate.Change(l, limit.Named("app", limit.Rule{Name: "all", Key: limit.Everyone, Limit: int64(20 + n), Window: time.Hour})))
		for range operate.Policies(l) {
		}
	}
	group.Wait()
	assert.LessOrEqual(t, admitted.Load(), int64(69))
	for i := range 69 - admitted.Load() {
		r := httptest.NewRequest("GET", "/", nil)
		r.Pattern = "/last"
		w := httptest.NewRecorder()
		each.ServeHTTP(w, r)
		assert.Equal(t, 200, w.Code, i)
	}
	assert.Zero(t, left(t, l, "app", "all", ""))
}

// TestWithPending is With a set that only Change defines.
func TestWithPending(t *testing.T) {
	l := limit.New(nil, nil)
	p := bound(t, l, limit.Named("p", limit.Global(time.Hour, 5)).With(limit.Named("app").Overridable()))
	_, err := p.Take(t.Context(), limit.Request{})
	assert.ErrorIs(t, err, limit.ErrUndecided)
	require.NoError(t, operate.Change(l, application))
	assert.Nil(t, take(t, p, 1))
	assert.EqualValues(t, 9, left(t, l, "app", "all", ""))
}

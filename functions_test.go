package limit

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/rules"
)

// otherFunctions gives the function-valued attributes of a rule values that do other
// things under one name, by the path of the field, and says how errors show the two.
var otherFunctions = map[string]struct {
	set  func(*Rule, int) // the same number is another value, unless Go can compare it
	text string
}{
	"Key": {func(r *Rule, n int) { r.Key = By("tenant", word(n)).Or(ByIP) },
		"the key tenant or ip, here another function of that name (call limit.By once, and use what it returns in both sets)"},
	"Algorithm.Distinct.Values": {func(r *Rule, n int) { r.Algorithm = Distinct{Values: By("name", word(n))} },
		"the values name, here another function of that name (call limit.By once, and use what it returns in both sets)"},
	"Cost": {func(r *Rule, n int) { r.Cost = rules.CostBy("units", func(*http.Request) int64 { return int64(n) }) },
		"the Cost units, here another function of that name (call rules.CostBy once, and use what it returns in both sets)"},
	"Settle": {func(r *Rule, n int) {
		r.Settle = rules.SettleBy("units", func(*http.Request, int) int64 { return int64(n) })
	},
		"the Settle units, here another function of that name (call rules.SettleBy once, and use what it returns in both sets)"},
	"OnRefusal.Fallback": {func(r *Rule, n int) {
		r.OnRefusal = Refusal{Degrade: true, Fallback: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) })}
	}, "a Fallback, here another"},
}

func word(n int) func(*http.Request) string {
	return func(*http.Request) string { return fmt.Sprint(n) }
}

// TestFunctionsOfOneName declares two sets of one name that differ in one function. The
// second would have the function of the first.
func TestFunctionsOfOneName(t *testing.T) {
	for field, test := range otherFunctions {
		set := func(n int) RuleSet {
			r := Rule{Name: "r", Key: Everyone, Limit: 5, Window: time.Hour}
			test.set(&r, n)
			return Named("p", r)
		}
		wrong := `rule "r" has ` + test.text + ": "
		first := set(1)
		for _, other := range []RuleSet{set(2), set(1)} {
			l := New(nil, nil)
			_, err := l.Policy(first)
			require.NoError(t, err, field)
			for _, same := range []RuleSet{first, Named("p", first.Rules()...)} {
				_, err = l.Policy(same)
				assert.NoError(t, err, field)
				assert.NoError(t, l.change(same), field)
			}
			_, err = l.Policy(other)
			assert.EqualError(t, err, `limit: policy "p": already has other rules: `+wrong+"declare the set once and share it, or choose another name")
			assert.EqualError(t, l.change(other), `limit: policy "p": has other rules in code: `+wrong+"declare them Overridable, or choose another name")

			l = New(nil, nil)
			require.NoError(t, l.change(first))
			_, err = l.Policy(other)
			assert.ErrorContains(t, err, `policy "p": has other rules in code: rule "r" has`, field)
		}
	}
}

// TestEveryFunctionIsTold checks that otherFunctions has every attribute that is, or
// contains, a function or an interface.
func TestEveryFunctionIsTold(t *testing.T) {
	var found []string
	fields := func(prefix string, of reflect.Type) {
		for _, field := range reflect.VisibleFields(of) {
			if hasFunction(field.Type, nil) {
				found = append(found, prefix+field.Name)
			}
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Rule]()) {
		switch field.Type {
		case reflect.TypeFor[Refusal]():
			fields(field.Name+".", field.Type)
		case reflect.TypeFor[rules.Algorithm]():
			algorithms := []rules.Algorithm{rules.SlidingLog{}, FixedWindow{}, SlidingCells{}, SlidingCounter{}, TokenBucket{},
				LeakyBucket{}, Queue{}, Concurrency{}, Ban{}, Distinct{}}
			assert.Len(t, algorithms, len(core.Algorithms()))
			for _, a := range algorithms {
				kind := reflect.TypeOf(a)
				fields(field.Name+"."+kind.Name()+".", kind)
			}
		default:
			if hasFunction(field.Type, nil) {
				found = append(found, field.Name)
			}
		}
	}
	for _, path := range found {
		assert.Contains(t, otherFunctions, path)
	}
	assert.Len(t, found, len(otherFunctions))
}

func hasFunction(t reflect.Type, within []reflect.Type) bool {
	for _, outer := range within {
		if outer == t {
			return false
		}
	}
	within = append(within, t)
	switch t.Kind() {
	case reflect.Func, reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return hasFunction(t.Elem(), within)
	case reflect.Struct:
		for i := range t.NumField() {
			if hasFunction(t.Field(i).Type, within) {
				return true
			}
		}
	}
	return false
}

// TestSettlementsOfOneName declares two sets that settle by different statuses. The
// second one's answers were given back: 20 of 20 passed a limit of 5.
func TestSettlementsOfOneName(t *testing.T) {
	failed := func(settle rules.Settlement) RuleSet {
		return Named("failed", Rule{Name: "failed", Key: ByIP, Limit: 5, Window: time.Hour, Settle: settle})
	}
	l := New(nil, nil)
	must.Get(l.Policy(failed(rules.OnStatus(http.StatusUnauthorized))))(t)
	_, err := l.Policy(failed(rules.OnStatus(http.StatusForbidden)))
	assert.EqualError(t, err, `limit: policy "failed": already has other rules (failed: 5/1h per ip settle 401, here failed: 5/1h per ip settle 403): rule "failed" has the Settle OnStatus(401), here OnStatus(403): `+
		"declare the set once and share it, or choose another name")
	_, err = l.Policy(failed(rules.Settlement{}))
	assert.ErrorContains(t, err, "has the Settle OnStatus(401), here none:")
	h := l.Limit(failed(rules.OnStatus(http.StatusUnauthorized)))(answer(http.StatusUnauthorized))
	passed := 0
	for range 20 {
		if serve(h, t.Context()).Code == http.StatusUnauthorized {
			passed++
		}
	}
	assert.Equal(t, 5, passed)

	assert.Equal(t, rules.OnStatus(403, 401, 403), rules.OnStatus(401, 403))
	assert.True(t, map[rules.Settlement]bool{rules.OnStatus(401): true}[rules.OnStatus(401)], "comparable")
	assert.NotEqual(t, rules.OnStatus(401), rules.OnStatus(403))
	assert.Equal(t, "OnStatus(200, 264, 401, 599)", rules.OnStatus(401, 599, 200, 264).String())
	for status := -1; status < 1100; status++ {
		settle := rules.OnStatus(200, 263, 264, 401, 599)
		want := int64(0)
		if status == 200 || status == 263 || status == 264 || status == 401 || status == 599 {
			want = rules.AsCharged
		}
		assert.Equal(t, want, settle.Units(nil, status), status)
	}
}

// TestFallbackOfOneName shares handlers that Go can compare.
func TestFallbackOfOneName(t *testing.T) {
	set := func(fallback http.Handler) RuleSet {
		return Named("p", Global(time.Hour, 1)).OnRefusal(Refusal{Degrade: true, Fallback: fallback})
	}
	l := New(nil, nil)
	mux := http.NewServeMux()
	for _, same := range []http.Handler{mux, mux} {
		_, err := l.Policy(set(same))
		assert.NoError(t, err)
	}
	for other, text := range map[http.Handler]string{http.NewServeMux(): "a Fallback, here another", nil: "a Fallback, here none"} {
		_, err := l.Policy(set(other))
		assert.EqualError(t, err, `limit: policy "p": already has other rules: rule "global-1h" has `+text+
			": declare the set once and share it, or choose another name")
	}
	l = New(nil, nil)
	notFound := set(http.NotFoundHandler())
	for _, same := range []RuleSet{notFound, notFound} {
		_, err := l.Policy(same)
		assert.NoError(t, err)
	}
	_, err := l.Policy(set(http.NotFoundHandler()))
	assert.ErrorContains(t, err, "a Fallback, here another")

	suffixed := func(fallback http.Handler) RuleSet {
		derived := must.Get(set(mux).Derive("-d", func(r Rule) Rule { r.OnRefusal.Fallback = fallback; return r }))(t)
		return derived
	}
	l = New(nil, nil)
	derived := suffixed(http.NotFoundHandler())
	for _, same := range []RuleSet{derived, derived} {
		_, err := l.Policy(same)
		assert.NoError(t, err)
	}
	_, err = l.Policy(suffixed(http.NotFoundHandler()))
	assert.ErrorContains(t, err, "a Fallback, here another")
}

// TestFunctionsAreDeclared declares functions that are nil, and names that are no word.
func TestFunctionsAreDeclared(t *testing.T) {
	for text, change := range map[string]func(*Rule){
		`rules.CostBy("units", …): write a function that is not nil`: func(r *Rule) { r.Cost = rules.CostBy("units", nil) },
		`rules.CostBy("", …): write`:                                 func(r *Rule) { r.Cost = rules.CostBy("", func(*http.Request) int64 { return 1 }) },
		`rules.SettleBy("units", …): write a function that is not`:   func(r *Rule) { r.Settle = rules.SettleBy("units", nil) },
		`rules.SettleBy("two words", …): write`: func(r *Rule) {
			r.Settle = rules.SettleBy("two words", func(*http.Request, int) int64 { return 1 })
		},
	} {
		r := Global(time.Hour, 1)
		change(&r)
		_, err := New(nil, nil).Policy(Rules(r))
		assert.ErrorContains(t, err, ": "+text)
		assert.ErrorContains(t, err, `rule "1/1h global `)
	}
	assert.EqualValues(t, 1, rules.Cost{}.Units(nil))
	assert.Equal(t, "units none", fmt.Sprint(rules.CostBy("units", nil), " ", "none"))
}

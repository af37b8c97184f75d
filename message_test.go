package limit

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/rules"
)

// TestMessage refuses requests by rules with messages: the client reads that of the first
// rule whose outcome it meets, and Retry-After stays.
func TestMessage(t *testing.T) {
	const text = `Too many "failed" logins \o/. Try again in 15 minutes.`
	rule := func(name, message string, status int) Rule {
		return Rule{Name: name, Key: Everyone, Limit: 1, Window: time.Minute, Message: message, OnRefusal: Refusal{Status: status}}
	}
	degrading := rule("a", "degraded", 0)
	degrading.OnRefusal = Refusal{Degrade: true}
	for want, rules := range map[string][]Rule{
		text:                 {rule("a", text, 0), rule("b", "other", 0)},
		"second":             {degrading, rule("b", "second", 503)},
		"Try again in 60 s.": {rule("a", "", 0), rule("b", "other", 0)},
	} {
		var d Decision
		h := New(nil, &Options{Observe: func(_ *http.Request, seen Decision, _ error) { d = seen }}).Limit(Rules(rules...))(answer(204))
		require.Equal(t, 204, serve(h, nil).Code)
		assert.Empty(t, d.Message)
		w := serve(h, nil)
		var document struct{ Detail string }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &document), w.Body.String())
		assert.Equal(t, want, document.Detail)
		assert.Equal(t, "60", w.Header().Get("Retry-After"))
		if d.Message != "" {
			assert.Equal(t, want, d.Message)
		} else {
			assert.Equal(t, "Try again in 60 s.", want)
		}
	}
	for _, bad := range []string{"a\nb", "\x00", "\xff", string(make([]byte, 201))} {
		assert.ErrorContains(t, Rules(rule("a", bad, 0)).Validate(), "write at most 200 bytes of printable characters", "%q", bad)
	}
	set := must.Get(Parse(`5/1m per ip message "Wait; (please) \"now\"."; 6/1h per ip`))(t)
	assert.Equal(t, `Wait; (please) "now".`, set.Declared()[0].Message)
	again := must.Get(Parse(set.String()))(t)
	assert.Equal(t, set.Rules(), again.Rules())
}

// TestFunctionsInText names functions of the program in text, tags and MarshalText.
func TestFunctionsInText(t *testing.T) {
	tenant := By("tenant", func(r *http.Request) string { return r.Header.Get("X-Tenant") })
	rows := rules.CostBy("rows", func(*http.Request) int64 { return 2 })
	failed := rules.SettleBy("failed-logins", func(*http.Request, int) int64 { return 1 })
	f := rules.Functions{Keys: []KeyResolver{tenant}, Costs: []rules.Cost{rows}, Settlements: []rules.Settlement{failed}}
	const text = "4/1m per tenant or ip cost rows settle failed-logins"
	l := New(nil, &Options{Functions: f})
	set := must.Get(f.Parse(text))(t)
	assert.True(t, set.Equal(Rules(Rule{Key: tenant.Or(ByIP), Limit: 4, Window: time.Minute, Cost: rows, Settle: failed})))
	marshaled := must.Get(set.MarshalText())(t)
	assert.Equal(t, text, string(marshaled))
	require.NoError(t, l.Mount(http.NewServeMux(), struct {
		H http.Handler `route:"GET /" limit:"4/1m per tenant cost rows" policy:"x"`
	}{answer(200)}))

	for text, want := range map[string]string{
		"4/1m per tenan":                  `found "tenan", want a key: ip, user, header NAME, cookie NAME, query NAME, path NAME, tenant, or`,
		"4/1m per ip cost row":            `found "row", want one of rows`,
		"4/1m per ip settle failed":       `found "failed", want one of failed-logins`,
		"4/1m per ip settle 401,x":        `want statuses from 200 to 599, such as 401,403`,
		"4/1m per ip settle 401,99":       `want statuses from 200 to 599`,
		"4/1m per ip cost rows cost rows": "each word once",
	} {
		_, err := f.Parse(text)
		assert.ErrorContains(t, err, want)
	}

	// Of two functions of one name, a text would mean the first.
	twice := rules.Functions{Keys: []KeyResolver{tenant, ByIP, tenant}, Costs: []rules.Cost{rows, rules.CostBy("rows", func(*http.Request) int64 { return 9 })}, Settlements: []rules.Settlement{failed, failed}}
	_, err := twice.Parse("4/1m per ip cost rows")
	for _, want := range []string{`Functions.Keys has two functions "tenant": give each a name of its own`, `Functions.Costs has two functions "rows"`, `Functions.Settlements has two functions "failed-logins"`} {
		assert.ErrorContains(t, err, want)
		assert.PanicsWithError(t, err.Error(), func() { New(nil, &Options{Functions: twice}) })
	}
	_, err = Parse("4/1m per tenant")
	assert.ErrorContains(t, err, "path NAME, or several of them")
}

package browser

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
)

// On a phone, the first screen has the clients, one row for each.
func TestPhone(t *testing.T) {
	s := serve(t, nil, nil)
	s.route("POST /update", limit.PerIP(time.Minute, 5))
	for _, addr := range []string{"203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4"} {
		s.send(8, "POST", "/login", addr, "")
		s.send(7, "POST", "/update", addr, "")
	}
	b := open(t, s.page(), look{width: 390, height: 844})
	b.await(long, `document.querySelectorAll('#keys tbody tr').length === 4`)
	b.await(soon, `document.querySelectorAll('#keys tbody tr')[0].querySelectorAll('.under .link').length === 2`)
	assert.LessOrEqual(t, eval[float64](b, `document.querySelector('#keys tbody tr:last-child').getBoundingClientRect().bottom`), 844.0)
	assert.LessOrEqual(t, eval[int](b, `document.documentElement.scrollWidth`), 390)
	b.noErrors()
}

// A route stands there before its first request, with its rules.
func TestRouteWithoutRequest(t *testing.T) {
	s := serve(t, nil, nil)
	b := open(t, s.page(), look{})
	b.awaitText(long, "#policies", "5/1m per ip; 1000/1m global")
	b.awaitText(soon, "#policies", "50/1m per user")
	assert.Equal(t, 2, eval[int](b, `[...document.querySelectorAll('#policies .tag')].filter((e) => e.textContent === 'no request yet').length`))
	s.send(1, "POST", "/login", client, "")
	b.awaitText(soon, "#policies tr.policy", "POST /login")
	b.await(soon, `!document.querySelector('#policies').textContent.includes('5/1m per ip; 1000/1m global')`)
	b.noErrors()
}

// Bans of rules stand in the list of bans by hand, and are lifted there.
func TestBanOfRule(t *testing.T) {
	s := serve(t, redistest.Client(t), nil)
	s.route("POST /ban", limit.PerIP(time.Minute, 2), limit.Rule{Name: "guesses", Key: limit.ByIP, Limit: 2, Window: time.Minute, Algorithm: limit.Ban{Bar: time.Hour}})
	s.send(6, "POST", "/ban", client, "")
	b := open(t, s.page(), look{})
	b.awaitText(long, "#bans", "by guesses of POST /ban")
	assert.Contains(t, b.text("#bans"), client)
	b.clickText("#bans", "Lift…")
	b.awaitText(soon, "#confirm", "Lift the ban of 203.0.113.9?")
	b.clickText("#confirm", "Lift the ban")
	b.awaitText(soon, "#bans-empty", "No client is banned.")
	b.clickText("main", "Ban a client…")
	b.write("#confirm [name=entry]", "198.51.100.0/24")
	b.clickText("#confirm", "Ban the client")
	b.awaitText(soon, "#bans", "198.51.100.0/24")
	require.Equal(t, 2, s.send(3, "POST", "/ban", "203.0.113.10", ""))
	b.do(chromedp.Evaluate[chromedp.Void](`scrollTo(0, 0)`))
	b.noErrors()
}

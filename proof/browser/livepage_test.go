package browser

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/livepage"
)

const (
	soon = 10 * time.Second // a state comes each second, and the machine is slow
	long = 20 * time.Second
)

// A refusal shows within two seconds: in the figures, as a policy, as a key, and in words.
func TestRefusalShows(t *testing.T) {
	s := serve(t, nil, nil)
	b := open(t, s.page(), look{})
	b.awaitText(long, "#banner", "No decision yet")
	b.awaitText(soon, "#policies", "no request yet")
	require.Equal(t, 5, s.send(6, "POST", "/login", client, ""))
	b.awaitText(2*time.Second, "#refusals", "per-ip-1m allows 5 in 1m for 203.0.113.9")
	b.awaitText(soon, "#keys tbody tr", "203.0.113.9")
	b.awaitText(soon, "#banner", "Healthy")
	assert.Equal(t, "POST /login 6 1 100 %", strings.Join(strings.Fields(b.text("#policies tr.policy")), " "))
	b.await(soon, `document.querySelector('#refused-plot svg').getAttribute('aria-label').startsWith('1 request refused in the last 2 minutes')`)
	b.noErrors()
}

// What an inner set refuses shows as given back by the outer one, which is as full as if it had not come.
func TestGivenBackShows(t *testing.T) {
	s := serve(t, nil, nil)
	application := must.Get(s.limiter.Policy(limit.Named("application", limit.Global(time.Hour, 20))))(t)
	inner := s.mux
	s.mux = http.NewServeMux()
	s.mux.Handle("/", application.Handler(inner))
	s.send(12, "POST", "/login", client, "")
	b := open(t, s.page(), look{})
	b.awaitText(long, "#policies", "7 given back")
	assert.Contains(t, strings.Join(strings.Fields(b.text("#policies")), " "), "application 7 given back 12 0 25 %")
	b.noErrors()
}

// An operator looks at a key, thinks twice, resets it, and sees it full.
func TestInspector(t *testing.T) {
	s := serve(t, nil, nil)
	s.send(6, "POST", "/login", client, "")
	b := open(t, s.page(), look{})
	b.await(long, `document.querySelector('#keys .link')`)
	b.clickText("#keys", client)
	b.awaitText(soon, "#peek", "0 of 5 left. The next request is refused.")
	b.await(soon, `getComputedStyle(document.querySelector('#peek .bar span')).transform === 'matrix(1, 0, 0, 1, 0, 0)'`)

	b.clickText("#peek", "Reset…")
	b.awaitText(soon, "#confirm", "Reset 203.0.113.9?")
	b.clickText("#confirm", "Cancel")
	require.Zero(t, s.send(1, "POST", "/login", client, ""), "a reset that was canceled")

	b.clickText("#peek", "Reset…")
	b.awaitText(soon, "#confirm-text", "per-ip-1m of POST /login becomes full")
	b.clickText("#confirm", "Reset the quota")
	b.awaitText(soon, "#inspector-status", "Reset 203.0.113.9 of per-ip-1m.")
	b.awaitText(soon, "#peek", "5 of 5 left. The quota is unused.")
	b.await(soon, `getComputedStyle(document.querySelector('#peek .bar span')).transform === 'matrix(0, 0, 0, 1, 0, 0)'`)
	require.Equal(t, 5, s.send(6, "POST", "/login", client, ""))
	b.awaitText(soon, "#peek", "0 of 5 left.")

	b.write("[name=rule]", "per-day")
	b.clickText("#inspector", "Look")
	b.awaitText(soon, "#inspector-status", "per-day")
	assert.False(t, eval[bool](b, `document.querySelector('#peek').checkVisibility()`))
	require.NotContains(t, b.text("#inspector"), "Ban…")
}

func TestBansAndOverrides(t *testing.T) {
	s := serve(t, redistest.Client(t), nil)
	s.send(6, "POST", "/login", client, "")
	b := open(t, s.page(), look{})
	b.awaitText(long, "#keys", client)
	b.awaitText(soon, "#bans-empty", "No client is banned.")

	b.clickText("#keys", client)
	b.awaitText(soon, "#peek", "0 of 5 left.")
	b.clickText("#peek", "Ban…")
	b.awaitText(soon, "#confirm-text", "All instances refuse every request of 203.0.113.9 for 1 hour.")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.await(soon, `!document.querySelector('#confirm').open && document.querySelector('#inspector').open`)
	require.Equal(t, 1, s.send(1, "GET", "/search", client, "alice"), "a ban that was canceled")

	b.clickText("#peek", "Ban…")
	b.do(chromedp.Evaluate[chromedp.Void](`{ const s = document.querySelector('#confirm [name=seconds]'); s.value = '0'; s.dispatchEvent(new Event('input', {bubbles: true})); }`))
	b.awaitText(soon, "#confirm-text", "All instances refuse every request of 203.0.113.9 until the ban is lifted.")
	b.do(chromedp.SetValue(chromedp.CSS("#confirm [name=seconds]"), "600"))
	b.write("#confirm [name=reason]", "guesses passwords")
	b.clickText("#confirm", "Ban the client")
	b.awaitText(soon, "#inspector-status", "Banned 203.0.113.9 for 10m.")
	b.clickText("#inspector", "Close")
	b.awaitText(soon, "#bans", "by local: guesses passwords")
	require.Zero(t, s.send(1, "GET", "/search", client, "alice"))
	b.awaitText(soon, "#refusals", "The client 203.0.113.9 is banned for another")
	b.clickText("#bans", "Lift…")
	b.awaitText(soon, "#confirm", "Lift the ban of 203.0.113.9?")
	b.clickText("#confirm", "Lift the ban")
	b.awaitText(soon, "#announcer", "Lifted the ban of 203.0.113.9.")
	b.awaitText(soon, "#bans-empty", "No client is banned.")
	require.Equal(t, 1, s.send(1, "GET", "/search", client, "alice"))

	b.clickText("#keys", client)
	b.awaitText(soon, "#peek", "0 of 5 left.")
	b.clickText("#peek", "Override…")
	b.awaitText(soon, "#confirm-text", "per-ip-1m of POST /login allows 203.0.113.9 5 now. Write another limit.")
	b.write("#confirm [name=limit]", "8")
	b.awaitText(soon, "#confirm-text", "per-ip-1m of POST /login allows 203.0.113.9 8 instead of 5 for 1 hour")
	b.clickText("#confirm", "Override the limit")
	b.awaitText(soon, "#peek", "3 of 8 left.")
	require.Equal(t, 3, s.send(5, "POST", "/login", client, ""))
	b.clickText("#inspector", "Close")
	b.awaitText(soon, "#overrides", client)
	b.clickText("#overrides", "Remove…")
	b.clickText("#confirm", "Remove the override")
	b.awaitText(soon, "#overrides-empty", "No key has a limit of its own.")

	// A pattern, of a rule whose keys are text.
	s.send(51, "GET", "/search", client, "free-ann")
	b.awaitText(long, "#keys", "free-ann")
	b.clickText("#keys", "free-ann")
	b.awaitText(soon, "#peek", "0 of 50 left.")
	b.clickText("#peek", "Override…")
	b.write("#confirm [name=limit]", "60")
	b.write("#confirm [name=pattern]", "free-*")
	b.awaitText(soon, "#confirm-text", "per-user-1m of GET /search allows each key that matches free-* 60 for 1 hour")
	b.clickText("#confirm", "Override the limit")
	b.awaitText(soon, "#peek", "10 of 60 left.")
	b.clickText("#inspector", "Close")
	b.awaitText(soon, "#overrides", "free-*")
	b.clickText("#overrides", "Remove…")
	b.clickText("#confirm", "Remove the override")
	b.awaitText(soon, "#overrides-empty", "No key has a limit of its own.")

	b.clickText("main", "Ban a client…")
	b.write("#confirm [name=entry]", "nobody at all")
	b.clickText("#confirm", "Ban the client")
	b.awaitText(soon, "#confirm-status", "Failed:")
	b.noErrorsBut("400")
}

// With a thousand policies and 100,000 keys, the page stays quick, and the state small.
func TestManyPoliciesAndKeys(t *testing.T) {
	s := serve(t, nil, nil)
	for i := range 1000 {
		s.route(fmt.Sprintf("GET /route-%03d", i), limit.PerIP(time.Minute, 5), limit.Global(time.Minute, 1000))
	}
	for i := range 100_000 {
		s.send(1, "GET", fmt.Sprintf("/route-%03d", i%1000), fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), "")
	}
	s.send(50, "GET", "/route-777", client, "")
	b := open(t, s.page(), look{})
	b.awaitText(long, "#range", "1–10 of 1,002")
	b.awaitText(soon, "#policies tr.policy", "GET /route-777")
	b.clickText("#pager", "Next")
	b.awaitText(soon, "#range", "11–20 of 1,002")
	b.clickText("#pager", "Previous")
	b.awaitText(soon, "#range", "1–10 of 1,002")
	b.clickText("#policies thead", "Policy")
	b.awaitText(soon, "#policies tr.policy", "GET /route-000")
	assert.Equal(t, "ascending", eval[string](b, `document.querySelector('[data-sort=name]').ariaSort`))
	b.write("#search", "ROUTE-99")
	b.awaitText(soon, "#policies tr.policy", "GET /route-990")
	b.await(soon, `document.querySelectorAll('#policies tr.policy').length === 10 && document.querySelector('#pager').hidden`)
	b.write("#search", "nothing")
	b.awaitText(soon, "#policies-empty", "None of 1,002 policies has “nothing” in its name.")
	b.write("#search", "route-777")
	b.awaitText(soon, "#policies tr.policy", "GET /route-777")
	b.clickText("#policies", "GET /route-777")
	b.awaitText(soon, "#filter", "Keys of GET /route-777")
	b.awaitText(soon, "#keys tbody tr", client)
	b.clickText("#filter", "All policies")
	b.await(soon, `document.querySelector('#filter').hidden`)

	t.Logf("tasks that blocked the page, in ms: %v", eval[[]int](b, `seen.long`)) // at most 200 on an idle machine
	assert.LessOrEqual(t, s.stateBytes("limit=100"), 64<<10, "bytes of a state")
	b.noErrors()
}

// stateBytes returns the size of a state.
func (s *service) stateBytes(query string) int {
	jar := must.Get(cookiejar.New(nil))(s)
	client := &http.Client{Jar: jar}
	w := must.Get(client.Get(s.page()))(s)
	w.Body.Close()
	w = must.Get(client.Get(s.URL + "/limits/events?" + query))(s)
	defer w.Body.Close()
	lines := bufio.NewScanner(w.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return len(data)
		}
	}
	s.Fatal("no state")
	return 0
}

// A viewer sees everything and can change nothing, and reads why.
func TestViewer(t *testing.T) {
	s := serve(t, redistest.Client(t), &livepage.Options{Authorize: func(*http.Request) (string, livepage.Role) { return "ann", livepage.Viewer }})
	s.send(6, "POST", "/login", client, "")
	b := open(t, s.page(), look{})
	b.awaitText(long, "#who", "ann (viewer)")
	b.clickText("#keys", client)
	b.awaitText(soon, "#peek", "0 of 5 left.")
	b.awaitText(soon, "#why", "Viewers cannot change anything")
	for _, button := range []string{"Reset…", "Override…", "Ban…", "Ban a client…"} {
		assert.NotContains(t, b.text("body"), button)
	}
	b.noErrors()
}

// Keys and names are what clients write. None is HTML, reorders text or hides in it.
func TestHostileStrings(t *testing.T) {
	s := serve(t, redistest.Client(t), nil)
	hostile := []string{`<img src=x onerror="hacked=1">`, "</script><script>hacked=1</script>", "a\u202egnp.exe", "\x1b[2Jclear", "zero\u200bwidth", "javascript:hacked=1",
		"line\nbreak", "\xff\xfe", strings.Repeat("W", 5000), "مرحبا", "\U000e0041tag", "{{constructor}}", "__proto__"}
	for _, name := range hostile {
		s.send(52, "GET", "/search", client, name)
	}
	b := open(t, s.page(), look{})
	b.await(long, fmt.Sprintf(`document.querySelectorAll('#keys .link').length >= %d`, 12))
	b.clickText("#refusals-foot", "Show up to 50")
	text := b.text("body")
	assert.Contains(t, text, `<img src=x onerror="hacked=1">`)
	assert.Contains(t, text, `a\u{202e}gnp.exe`)
	assert.Contains(t, text, `\u{1b}[2Jclear`)
	assert.NotRegexp(t, "[\u202e\u200b\x1b]", eval[string](b, `document.body.textContent`))
	assert.True(t, eval[bool](b, `window.hacked === undefined && document.querySelectorAll('main img, main script, main b a').length === 0`))
	assert.LessOrEqual(t, eval[int](b, `document.documentElement.scrollWidth`), 1280)

	// The key that a row has is sent as it is, though it is shown with escapes.
	b.do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll('#keys .link')].find((e) => e.textContent.includes('clear')).click()`))
	b.awaitText(soon, "#peek", "0 of 50 left.")
	b.clickText("#peek", "Reset…")
	b.clickText("#confirm", "Reset the quota")
	b.awaitText(soon, "#peek", "50 of 50 left.")
	b.noErrors()
}

// With hidden keys, the page has hashes only, and they do.
func TestHiddenKeys(t *testing.T) {
	s := serve(t, nil, &livepage.Options{HideKeys: true})
	s.send(6, "POST", "/login", client, "")
	b := open(t, s.page(), look{})
	b.await(long, `document.querySelector('#keys .link')`)
	b.click("#keys .link")
	b.awaitText(soon, "#peek", "0 of 5 left.")
	b.clickText("#peek", "Reset…")
	b.clickText("#confirm", "Reset the quota")
	b.awaitText(soon, "#peek", "5 of 5 left.")
	require.NotContains(t, eval[string](b, `document.documentElement.outerHTML`), client)
	b.noErrors()
}

// Rows stay where they are while somebody points at them.
func TestRowsHold(t *testing.T) {
	s := serve(t, nil, nil)
	s.send(6, "POST", "/login", client, "")
	b := open(t, s.page(), look{width: 1280, height: 1400})
	b.await(long, `document.querySelectorAll('#refusals tbody tr').length === 1`)
	b.do(chromedp.Evaluate[chromedp.Void](`window.r = document.querySelector('#refusals tbody tr').getBoundingClientRect()`))
	b.do(chromedp.MouseEvent("mouseMoved", eval[float64](b, `r.x + 20`), eval[float64](b, `r.y + 10`)))
	s.send(3, "POST", "/login", client, "")
	b.awaitText(soon, "#refusals-held", "3 newer")
	require.Equal(t, 1, eval[int](b, `document.querySelectorAll('#refusals tbody tr').length`))
	b.do(chromedp.MouseEvent("mouseMoved", 5, 5))
	b.await(soon, `document.querySelectorAll('#refusals tbody tr').length === 4`)
}

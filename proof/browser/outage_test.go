package browser

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/livepage"
)

// The page says that the server is gone and since when, and connects again by itself.
func TestReconnect(t *testing.T) {
	s := serve(t, nil, nil)
	s.send(6, "POST", "/login", client, "")
	b := open(t, s.page(), look{})
	b.awaitText(long, "#banner", "Healthy")
	addr := s.Listener.Addr().String()
	s.stop()
	b.awaitText(long, "#banner", "Disconnected")
	b.awaitText(soon, "#banner", "The last data is of ")
	s.listen(addr)
	b.awaitText(long, "#banner", "Healthy")
	b.awaitText(soon, "#connection", "Live")
	require.False(t, eval[bool](b, `document.body.classList.contains('stale')`))
}

// An outage of Redis shows within seconds, with how requests are decided meanwhile, and so
// does its end.
func TestOutage(t *testing.T) {
	server := redistest.Launch(t)
	shared := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true}))
	s := serve(t, shared, nil)
	s.send(20, "POST", "/login", client, "")
	done := make(chan struct{})
	go s.traffic(done)
	t.Cleanup(func() { done <- struct{}{} })
	b := open(t, s.page(), look{})
	b.awaitText(long, "#keys", client)
	require.NotContains(t, b.text("#banner"), "unavailable")
	b.do(chromedp.Evaluate[chromedp.Void](`window.said = []; new MutationObserver(() => said.push(announcer.textContent)).observe(announcer, {childList: true})`))
	server.Kill()
	b.awaitText(long, "#banner", "The store is unavailable")
	b.awaitText(soon, "#modes", "local")
	b.awaitText(long, "#timeline", "to now, by this process alone")
	for _, l := range looks {
		b.look(l)
		b.audited("an outage")
	}
	b.clickText("#keys", client)
	b.awaitText(long, "#peek", "this instance alone decides")
	b.clickText("#peek", "Reset…")
	b.clickText("#confirm", "Reset the quota")
	b.awaitText(long, "#confirm-status", "Failed: the store failed")
	b.clickText("#confirm", "Cancel")
	b.clickText("#inspector", "Close")
	figure := eval[string](b, `banner.textContent`)
	b.await(soon, fmt.Sprintf(`banner.textContent !== %q`, figure))
	server.Restart()
	b.awaitText(long, "#banner", "The store is available again")
	b.awaitText(long, "#banner", "It lost data, which was noticed at ")
	require.NotContains(t, b.text("#timeline"), "to now")
	require.Equal(t, 1, eval[int](b, `said.filter((s) => s.startsWith('The store is unavailable.')).length`), "the figures of the banner are not read aloud")
	for _, l := range looks {
		b.look(l)
		b.audited("after an outage")
	}
}

// A viewer who is locked out reads why, and sees the page again once that ends.
func TestLockedOut(t *testing.T) {
	var role atomic.Int64
	role.Store(int64(livepage.Viewer))
	s := serve(t, nil, &livepage.Options{Authorize: func(*http.Request) (string, livepage.Role) { return "ann", livepage.Role(role.Load()) }})
	b := open(t, s.page(), look{})
	b.awaitText(long, "#connection", "Live")
	role.Store(int64(livepage.Nobody))
	s.CloseClientConnections()
	b.awaitText(long, "#banner", "You may not see this page")
	b.awaitText(soon, "#connection", "Disconnected")
	role.Store(int64(livepage.Viewer))
	b.awaitText(long, "#connection", "Live")
}

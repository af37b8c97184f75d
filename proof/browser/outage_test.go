package browser

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/redistest"
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
	server := redistest.NewMortal(t)
	shared := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { shared.Close() })
	s := serve(t, shared, nil)
	s.send(20, "POST", "/login", client, "")
	done := make(chan struct{})
	go s.traffic(done)
	t.Cleanup(func() { done <- struct{}{} })
	b := open(t, s.page(), look{})
	b.awaitText(long, "#keys", client)
	require.NotContains(t, b.text("#banner"), "unavailable")
	server.Kill()
	b.awaitText(long, "#banner", "The store is unavailable")
	b.awaitText(soon, "#modes", "local")
	b.awaitText(long, "#timeline", "to now, by this process alone")
	for _, l := range looks {
		b.look(l)
		b.audited("an outage")
	}
	b.clickText("#keys", client)
	b.awaitText(long, "#peek", " left.")
	b.clickText("#peek", "Reset…")
	b.clickText("#confirm", "Reset the quota")
	b.awaitText(long, "#confirm-status", "Failed: the store failed")
	b.clickText("#confirm", "Cancel")
	b.clickText("#inspector", "Close")
	server.Start()
	b.awaitText(long, "#banner", "The store is available again")
	for _, l := range looks {
		b.look(l)
		b.audited("after an outage")
	}
}

//go:build !race

package livepage

import (
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// TestAllocations checks that the page costs a decision no allocation: one of keys that are
// tracked, and a refusal by a ban, behind a proxy. The race detector adds some.
func TestAllocations(t *testing.T) {
	proxies := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	_, p := pageOf(nil, nil)
	p.limiter = limit.New(nil, &limit.Options{Log: quiet, Proxies: proxies})
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.1.2.3:4711"
	r.Header.Set("X-Forwarded-For", "198.51.100.7, 203.0.113.9")
	for _, d := range append(decisions(t, 1, 1, false), limit.Decision{Mode: core.ModeBarred}) {
		p.collector.observe(r, d, nil)
		assert.Zero(t, testing.AllocsPerRun(1000, func() { p.collector.observe(r, d, nil) }), d.Mode)
	}
}

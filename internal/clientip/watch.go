package clientip

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
)

// A Watch finds requests that a [Config] does not expect, of each kind once. It is safe for
// concurrent use.
type Watch struct {
	untrusted, silent atomic.Bool  // whether each kind was found
	requests          atomic.Int32 // that were looked at
}

// A Surprise is what is wrong with a request.
type Surprise int

const (
	Nothing        Surprise = iota
	UntrustedProxy          // it has a forwarding header, and its peer is not trusted
	SilentProxy             // it comes from a trusted proxy that names no client
)

// watched is how many of the first requests are looked at, which takes time, and of how many later
// ones one is.
const watched = 100

// Look looks at a request, and returns the name of the header that is there, or that is missing.
func (w *Watch) Look(c *Config, remoteAddr string, header http.Header) (found Surprise, name string) {
	switch {
	case w.requests.Load() < watched:
		w.requests.Add(1)
	case rand.Uint32()%watched != 0:
		return Nothing, ""
	}
	if w.untrusted.Load() && w.silent.Load() || len(c.Trusted) == 0 && c.Hops > 0 {
		return Nothing, ""
	}
	if len(c.Trusted) > 0 && c.trusts(parseAddress(remoteAddr)) {
		name = cmp.Or(c.Header, "X-Forwarded-For")
		if len(header.Values(name)) == 0 && !w.silent.Swap(true) {
			return SilentProxy, name
		}
	} else if !w.untrusted.Load() {
		if name = Forwarded(header); name != "" && !w.untrusted.Swap(true) {
			return UntrustedProxy, name
		}
	}
	return Nothing, ""
}

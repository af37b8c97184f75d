package replay

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
)

// A place is a method and a path of the log, and where policies send them.
type place struct {
	placeKey
	url   *url.URL // nil if the client sent no request that a server would route
	route int      // in places.routes

	matched [2][]match // by each set of policies
}

// A match is a policy that decides, and the pattern by which it does.
type match struct {
	*bound
	pattern string            // or what stands for it
	values  map[string]string // of the wildcards in the pattern; nil if the policy needs none
}

// places finds routes. It remembers the last ones: a request's path is the client's
// choice, so it remembers a bounded number of them.
type places struct {
	known  map[placeKey]*place
	sides  []*side
	routes []string
}

type placeKey struct{ method, host, path string }

const (
	maxPlaces   = 1 << 16
	maxPath     = 512 // bytes of a path that is remembered
	maxGuessed  = 200
	otherRoutes = "(other routes)"
)

func newPlaces(sides []*side) *places {
	return &places{known: make(map[placeKey]*place), sides: sides, routes: []string{otherRoutes}}
}

func (p *places) routeOf(label string) int {
	if i := slices.Index(p.routes, label); i >= 0 {
		return i
	}
	p.routes = append(p.routes, label)
	return len(p.routes) - 1
}

func (p *places) of(r *accesslog.Record) *place {
	if found := p.known[placeKey{r.Method, r.Host, r.Path}]; found != nil {
		if found.route == 0 && found.url != nil && p.guesses(r) { // it was first seen with an error
			found.route = p.guess(found)
		}
		return found
	}
	key := placeKey{strings.Clone(r.Method), strings.Clone(r.Host), strings.Clone(r.Path)}
	made := p.make(key, r)
	if len(key.host)+len(key.path) <= maxPath {
		if len(p.known) >= maxPlaces {
			clear(p.known)
		}
		p.known[key] = made
	}
	return made
}

func (p *places) make(key placeKey, r *accesslog.Record) *place {
	at := &place{placeKey: key}
	if at.url, _ = url.ParseRequestURI(at.path); at.url == nil || at.method == "" {
		at.url = nil // as net/http does, which answers 400
		return at
	}
	for i, side := range p.sides {
		at.matched[i] = side.matching(at)
	}
	for _, m := range slices.Concat(at.matched[:]...) {
		if len(m.Routes) > 0 { // the first one is the best
			at.route = p.routeOf(m.pattern)
			return at
		}
	}
	if p.guesses(r) {
		at.route = p.guess(at)
	}
	return at
}

// guesses reports whether a record shows that its path has a route: attackers try many
// paths that have none. Failed logins are answered with 401, and a server with limits
// answers with 429.
func (p *places) guesses(r *accesslog.Record) bool {
	login := r.Status == http.StatusUnauthorized && r.Method != http.MethodGet && r.Method != http.MethodHead
	return (r.Status < 400 && !moved(r) || login || r.Status == http.StatusTooManyRequests) && len(r.Path) <= maxPath
}

// guess returns a pattern for a path that no policy matches, with wildcards for what looks
// like an identifier. There are only so many guessed routes.
func (p *places) guess(at *place) int {
	segments := strings.Split(at.url.Path, "/")
	names := 0
	for i, s := range segments {
		switch {
		case isID(s):
			if segments[i] = "{id}"; names > 0 {
				segments[i] = fmt.Sprintf("{id%d}", names+1) // a pattern has each name once
			}
			names++
		case s == "" && i == len(segments)-1:
			segments[i] = "{$}" // without it, a pattern is that of all paths below
		}
	}
	method := at.method
	if method == http.MethodHead {
		method = http.MethodGet // whose patterns match HEAD too
	}
	label := method + " " + strings.Join(segments, "/")
	if len(p.routes) >= maxGuessed && !slices.Contains(p.routes, label) {
		return 0
	}
	return p.routeOf(label)
}

// isID reports whether a segment of a path is a number, a UUID, a hash, or a long name.
func isID(s string) bool {
	digits := 0
	for _, c := range s {
		if '0' <= c && c <= '9' {
			digits++
		}
	}
	n, hex := len(s), strings.Trim(s, "0123456789abcdefABCDEF-") == ""
	return n > 0 && (digits == n || n >= 8 && hex && digits > 0 || n > 40 || n >= 12 && digits*3 >= n)
}

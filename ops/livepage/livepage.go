// Package livepage serves a page that shows what a limiter does now: how many requests it admits
// and refuses, which rules refuse, which clients are at their limits, how decisions are made while
// the store fails, and the last refusals in words.
//
//	mux.Handle("/limits/", livepage.Handler(limiter, nil))
//
// Operators look at one key of a rule, reset it, ban a client or change its limit. Without
// [Options].Authorize, the page is served to this machine only, and needs a token, which the
// program logs at its start. docs/live-page.md is the guide.
package livepage

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/shown"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/ops/overrides"
)

// A Role says what a person may do on the page.
type Role int

// The roles. Each may do what the one before it may.
const (
	Nobody   Role = iota // sees nothing: 403
	Viewer               // sees the page
	Operator             // also resets keys, and changes bans and overrides
)

// Options configures a Handler. The zero Options is ready to use.
type Options struct {
	// Authorize returns the name of the person who sends a request, which it must verify, and what
	// the person may do. The name is shown on the page, and is kept with bans and overrides. The
	// function is called for each request, and each minute while the page is open, so it can log
	// who changes what. Nil makes each browser an Operator that has the Token, comes from a
	// loopback address and asks for a loopback name, and refuses all other requests.
	Authorize func(*http.Request) (who string, role Role)

	// Token opens the page if Authorize is nil, at its address with ?token=… at the end, and moves
	// into a cookie. "" means a random one, which Handler logs. Handler panics if it is shorter
	// than 22 characters, or has others than letters, digits, - and _.
	Token string

	// Log receives one line at level Info, with the random Token. Nil means [slog.Default].
	Log *slog.Logger

	// Name is the name of this instance on the page. "" means the host and the process id, such as
	// "web-3/4711".
	Name string

	// HideKeys shows each key, and each entry of bans, as a hash, which is another one after a
	// restart. Operators act on the hashes.
	HideKeys bool

	// Bans lets operators ban clients, and lists the banned ones. Nil means that the page cannot.
	Bans *access.Bans

	// Overrides lets operators change the limits of single keys, and lists them. Nil means that the
	// page cannot.
	Overrides *overrides.Overrides
}

//go:embed page
var files embed.FS

// Handler returns the handler of the page. Mount it at a path with a slash at the end, for all
// methods. It observes the limiter from now on, for as long as the limiter is used, so make one for
// each limiter. It panics without a limiter and on an invalid Token. A nil options means the zero
// Options.
//
// Observing costs each decision about as much as one in memory takes, and no
// allocation. The memory is bounded: see docs/live-page.md.
func Handler(limiter *limit.Limiter, options *Options) http.Handler {
	if limiter == nil {
		panic("livepage: the limiter is nil: write livepage.Handler(limiter, nil)")
	}
	p := &page{limiter: limiter, options: *cmp.Or(options, new(Options)), collector: newCollector(limiter), keyIDs: newIDs(), banIDs: newIDs()}
	p.states.lifted = map[bannedKey]time.Time{}
	p.options.Name = cmp.Or(p.options.Name, shown.Instance())
	p.token = newToken(&p.options)
	operate.Observe(limiter, p.collector.observe)
	return p
}

type page struct {
	limiter   *limit.Limiter
	options   Options
	token     string // "" with Authorize
	collector *collector
	keyIDs    *ids // of keys that are hidden or no text
	banIDs    *ids // of entries of bans that are hidden
	states    states
	viewers   viewers
	servers   servers
}

// A method and the last segment of the path say what a request is for.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	v, ok := p.authorize(w, r)
	if !ok {
		return
	}
	_, name := path.Split("x" + r.URL.Path)
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	_, change := p.changes()[name]
	switch {
	case change && r.Method != http.MethodPost:
		h.Set("Allow", http.MethodPost)
		answer(w, nil, problemf(http.StatusMethodNotAllowed, "method %s: use POST", r.Method))
	case change:
		said, err := p.change(w, r, v, name)
		answer(w, map[string]string{"done": said}, err)
	case !read:
		h.Set("Allow", "GET, HEAD")
		answer(w, nil, problemf(http.StatusMethodNotAllowed, "method %s: use GET", r.Method))
	case name == "events":
		p.events(w, r, v)
	case name == "peek":
		found, err := p.peek(r)
		answer(w, found, err)
	case name == "", slices.Contains([]string{".css", ".js", ".svg"}, path.Ext(name)):
		http.ServeFileFS(w, r, files, "page/"+cmp.Or(name, "index.html"))
	case path.Ext(name) == "":
		slash(w, r)
	default:
		http.NotFound(w, r)
	}
}

// slash redirects to the same path with a slash at the end, so that the paths in the page lead to
// this handler: the path that the client sees, from which middleware may have cut a prefix for
// r.URL.
func slash(w http.ResponseWriter, r *http.Request) {
	seen := r.URL
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		seen = u
	}
	to := url.URL{Path: "./" + path.Base(seen.Path) + "/", RawQuery: seen.RawQuery}
	w.Header().Set("Location", to.String())
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// A problem is an error with a status of HTTP.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

func problemf(status int, format string, args ...any) error {
	return &problem{status, fmt.Sprintf(format, args...)}
}

// shown returns an error of the limiter, of bans or of overrides as operators see it: it may have
// the key.
func (p *page) shown(a *action, err error) error {
	var network net.Error
	var redis interface{ RedisError() }
	switch {
	case err == nil, errors.As(err, new(*problem)):
		return err
	case errors.Is(err, limit.ErrUndecided), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, io.EOF), errors.As(err, &network), errors.As(err, &redis):
		return problemf(http.StatusServiceUnavailable, "the store failed: %s. Try again. A change may have been made already.",
			p.cause(a, err, true, 300))
	}
	return problemf(http.StatusBadRequest, "%s", p.cause(a, err, false, 1000))
}

// cause returns the text of an error, unless it may have a key that is hidden. Errors of the
// store have names of Redis, in which the key is written in another way.
func (p *page) cause(a *action, err error, ofStore bool, most int) string {
	if p.options.HideKeys && a.ID != "" {
		key, ok := p.keyIDs.find(a.ID)
		quoted := strconv.Quote(key)
		if ofStore || !ok || strings.Contains(err.Error(), key) || strings.Contains(err.Error(), quoted[1:len(quoted)-1]) {
			return "the cause is not shown, since it may name the hidden key"
		}
	}
	return excerpt(err.Error(), most)
}

// answer answers with a body, or with a [*problem].
func answer(w http.ResponseWriter, body any, err error) {
	status := http.StatusOK
	if err != nil {
		wrong := err.(*problem)
		status, body = wrong.status, map[string]string{"error": wrong.text}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client disconnected
}

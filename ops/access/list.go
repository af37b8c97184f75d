// Package access lists the clients that limits spare or bar:
//
//	ours, err := access.Parse(strings.NewReader("10.0.0.0/8"), nil)
//	…
//	bad, err := access.Watch(ctx, "/etc/service/barred", nil)
//	…
//	limiter := limit.New(store, &limit.Options{Exempt: ours.Matches, Bar: bad.Bar})
//
// The limiter says who a client is: its address by Proxies, and its user by User, of
// [limit.Options].
//
// A [List] is read from text, or from a file that may change. [Bans] are entries that
// operators add and remove while the program runs, on all its instances at once.
//
// # Text
//
// A list has one entry a line, and comments:
//
//	10.0.0.0/8            # a prefix, or an address
//	2001:db8:1:2::/64     # an IPv6 client has at least a /64
//	user alice
//	agent "BadBot"        # a part of the User-Agent, in upper or lower case
//	header X-Internal-Token s3cret
//
// A text with blanks, quotes or # in it is written in double quotes, with the escapes
// of Go. # begins a comment at the start of a line and after a blank.
//
// A request matches if one entry does. Users are compared byte by byte. Of the
// User-Agent, the first 1,024 bytes count. Of a header, its first value counts, and is
// compared in constant time. A client can write any User-Agent, so exempt no client by
// that.
package access

import (
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/notice"
)

// Options configures a [List] or [Bans]. The zero Options is ready to use.
type Options struct {
	// Log receives a line when a list could not be read, when it has changed, when a ban
	// has no effect, and when a list exempts a trusted proxy. The codes are LIMIT-405,
	// LIMIT-406 and LIMIT-117. Nil means [slog.Default].
	Log *slog.Logger
}

func (o *Options) log() *notice.Log {
	if o == nil {
		return new(notice.Log)
	}
	return &notice.Log{To: o.Log}
}

// A List is a set of entries that requests match or not. Make it with [Parse] or
// [Watch]. It is safe for concurrent use.
type List struct {
	log   *notice.Log
	table atomic.Pointer[table]
}

// NewList returns a list of entries: at most 1,000 agents and 100 headers.
func NewList(entries []Entry, options *Options) (*List, error) {
	l, t := &List{log: options.log()}, newTable()
	for _, e := range entries {
		if problem := t.add(e); problem != "" {
			return nil, errors.New("access: " + problem)
		}
	}
	l.table.Store(t)
	return l, nil
}

// Parse reads a list of at most 8 MiB, in the form that the package describes. The
// error names the line and column of up to 10 mistakes, and says what to write
// instead. It is a mistake to list all addresses (0.0.0.0/0).
func Parse(text io.Reader, options *Options) (*List, error) {
	l := &List{log: options.log()}
	t, err := parse(text, false)
	if err != nil {
		return nil, err
	}
	l.table.Store(t)
	return l, nil
}

// Matches reports whether the client of a request matches an entry. It is for
// [limit.Options].Exempt. It logs once if an entry contains a proxy that the limiter
// trusts: requests that the proxy sends without the address of a client would be exempt.
func (l *List) Matches(c limit.Client) bool {
	t := l.table.Load()
	if c.Limiter != nil && t.checked.Load() != c.Limiter && !t.warned.Load() {
		t.checkProxies(c.Limiter, l.log)
	}
	return t.remaining(c) != 0
}

// Bar returns [limit.Never] if the client of a request matches an entry, and 0 if it does
// not. It is for [limit.Options].Bar. Together with another list or with [Bans], write
//
//	Bar: func(c limit.Client) time.Duration { return max(list.Bar(c), bans.Bar(c)) }
func (l *List) Bar(c limit.Client) time.Duration { return l.table.Load().remaining(c) }

// checkProxies warns if an entry contains a trusted proxy, or is one.
func (t *table) checkProxies(l *limit.Limiter, log *notice.Log) {
	t.checked.Store(l)
	for _, proxy := range l.Proxies().Trusted {
		if t.prefixes.OverlapsPrefix(proxy) && !t.warned.Swap(true) {
			notice.Write(log, notice.ExemptProxy, "access: a list exempts a trusted proxy, and so every client whose address the proxy does not send: "+
				"write prefixes without the proxy", 0, "proxy", proxy)
			return
		}
	}
}

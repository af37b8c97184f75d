// Package access lists the clients that limits spare or bar:
//
//	proxies := limit.Proxies{Hops: 1}
//	ours, err := access.Parse(strings.NewReader("10.0.0.0/8"), &access.Options{ClientIP: proxies.ClientIP})
//	…
//	bad, err := access.Watch(ctx, "/etc/service/barred", &access.Options{ClientIP: proxies.ClientIP})
//	…
//	limiter := limit.New(store, &limit.Options{Proxies: proxies, Exempt: ours.Matches, Bar: bad.Bar})
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
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit"
)

// Options says what the entries of a [List] or of [Bans] are compared with. The zero
// Options is ready to use.
type Options struct {
	// ClientIP returns the address of the client, or the zero Addr if it has none.
	// Behind a proxy, use the ClientIP of the [limit.Proxies] that you give to the
	// limiter. Nil means the peer of the connection.
	ClientIP func(*http.Request) netip.Addr

	// User returns the verified user of a request, or "" if it has none. It runs
	// when a policy decides, so authentication must run before the policy. Nil
	// makes an entry of a user an error, also of [Bans.Ban].
	User func(*http.Request) string

	// Log receives a line when a list could not be read, when it has changed, and when
	// a ban has no effect. The codes are LIMIT-405 to LIMIT-407. Nil means
	// [slog.Default].
	Log *slog.Logger
}

func (o *Options) orDefault() Options {
	var options Options
	if o != nil {
		options = *o
	}
	if options.ClientIP == nil {
		options.ClientIP = new(limit.Proxies).ClientIP
	}
	return options
}

// A List is a set of entries that requests match or not. Make it with [Parse] or
// [Watch]. It is safe for concurrent use.
type List struct {
	options Options
	table   atomic.Pointer[table]
}

// Parse reads a list of at most 8 MiB, in the form that the package describes. The
// error names the line and column of up to 10 mistakes, and says what to write
// instead. It is a mistake to list all addresses (0.0.0.0/0).
func Parse(text io.Reader, options *Options) (*List, error) {
	l := &List{options: options.orDefault()}
	t, err := parse(text, &l.options, false)
	if err != nil {
		return nil, err
	}
	l.table.Store(t)
	return l, nil
}

// Matches reports whether a request matches an entry. It is for
// [limit.Options].Exempt.
func (l *List) Matches(r *http.Request) bool { return l.Bar(r) != 0 }

// Bar returns [limit.Never] if a request matches an entry, and 0 if it does not. It is
// for [limit.Options].Bar. Together with another list or with [Bans], write
//
//	Bar: func(r *http.Request) time.Duration { return max(list.Bar(r), bans.Bar(r)) }
func (l *List) Bar(r *http.Request) time.Duration { return l.table.Load().remaining(&l.options, r) }

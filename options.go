package limit

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/routelimit/limit/internal/clientip"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

// Options configures a [Limiter]. The zero Options is ready to use. Functions must be safe
// for concurrent use, and must not block.
type Options struct {
	// Caller says who sends a request: its user, its plan and its class. A rule by user is
	// an error at declaration if neither Caller.User nor that of the adapter is set.
	Caller Caller[*http.Request]

	// Override returns the limit of a key, in place of that of the plan and of the rule; 0
	// means none. The names and the key are those of a [RuleDecision]. It is called for each
	// rule of each decision. Package overrides has one.
	Override func(policy, rule, key string) int64

	// Classes lists the classes, from the highest to the lowest: at most 16, and
	// "default" must be one of them. Nil means critical, default and background.
	Classes []string

	// Proxies says which forwarding headers to believe. The zero value believes none.
	Proxies Proxies

	// Instances is how many processes share the store; 0 means 1. While the store is
	// unavailable, each process admits at most its share of a limit, rounded up.
	Instances int

	// MaxKeys is how many partly used keys this process tracks, over all rules; 0 means
	// [memstore.DefaultMaxKeys]. Set it above the number of clients you expect in the
	// longest window. Beyond it, new clients share an overflow quota, on Redis too, and
	// may be refused early.
	MaxKeys int

	// Headers says which headers tell clients of their quotas; 0 means [Draft11].
	Headers Headers

	// Jitter adds a random time, up to Jitter and at most 24 hours, to the Retry-After of
	// refused clients, so that they do not return together.
	Jitter time.Duration

	// Exempt reports whether a request passes without being charged, such as a health
	// check. Its response has no quota headers, and Bar is not called for it. Nil exempts
	// no request. Exempt and Bar are for HTTP requests and RPC calls, and are called once
	// for each policy on a request. Package access has lists for both.
	Exempt func(Client) bool

	// Bar returns how much longer the client of a request is barred: 0 or less if it is
	// not, and [Never] if it is barred for good. A barred request is refused with 403,
	// charges no rule and does not call the store. Nil bars no client.
	Bar func(Client) time.Duration

	// Refuse answers a refused request, after the headers are set. Without WriteHeader, the
	// status is 429, 403 if the client is barred, or 503 during an outage, and a body that
	// begins with { is JSON unless a Content-Type is set. Nil means a problem details document
	// (RFC 9457). Adapters have a Refuse of their own, in the form of their framework.
	Refuse func(http.ResponseWriter, *http.Request, Decision)

	// Fail answers a request that could not be decided, as Refuse does, with 503. The error
	// wraps [ErrUndecided]. The document of a nil Fail does not name the cause.
	Fail func(http.ResponseWriter, *http.Request, error)

	// OnRefusal is the Refusal where neither the rule nor its set has one; zero means 429.
	OnRefusal Refusal

	// Functions are those that rules in tags can name.
	Functions rules.Functions

	// Waiters is how many requests may wait at once, over all rules: see
	// [rules.Refusal]. 0 means 10,000. Further requests are refused at once.
	Waiters int

	// Observe is called once for each decision, before the request goes on. The request is
	// nil outside HTTP. A request that could not be decided has the zero Decision, and an
	// error that says why. Observe is called again, with decision and error, at the end of an
	// admitted request that could not be settled or that lost a lease: see [ErrLeaseLost].
	// It is called again, without an error, for an admitted request that an inner rule set has
	// refused: see GivenBack of [Decision].
	Observe func(*http.Request, Decision, error)

	// Log receives warnings for operators: outages, requests that could not be decided,
	// and declarations that probably mean something else. Each has a stable code, and is
	// logged at most once a minute. docs/diagnostics.md explains them. Nil means
	// [slog.Default]; slog.New(slog.DiscardHandler) is silent.
	Log *slog.Logger

	// Silence lists codes of lines that are not written to Log, and of problems that
	// operate.Check does not return, such as "LIMIT-112". An unknown code is an error.
	Silence []string
}

const (
	maxJitter           = 24 * time.Hour
	defaultTotalWaiters = 10_000

	// How often in a second callers that wait for leases of other processes ask the
	// store: those of this limiter, and those of all instances.
	mostPolls, allPolls = 100, 10_000
)

// validate returns an error that joins one for each invalid option.
func (o *Options) validate() error {
	errs := []error{o.Proxies.config().Validate(), o.OnRefusal.Validate(), grammar.CheckClasses(o.Classes), o.Functions.Validate()}
	if o.Waiters < 0 {
		errs = append(errs, fmt.Errorf("limit: Waiters %d: write how many requests may wait at once, or 0 for %d", o.Waiters, defaultTotalWaiters))
	}
	if o.Instances < 0 {
		errs = append(errs, fmt.Errorf("limit: Instances %d: write how many processes share the store, or 0 for one", o.Instances))
	}
	if o.MaxKeys < 0 {
		errs = append(errs, fmt.Errorf("limit: MaxKeys %d: write how many keys to track, or 0 for %d", o.MaxKeys, memstore.DefaultMaxKeys))
	}
	if o.Jitter < 0 || o.Jitter > maxJitter {
		errs = append(errs, fmt.Errorf("limit: Jitter %v: write 0 to %v", o.Jitter, maxJitter))
	}
	if o.Headers&NoHeaders != 0 && o.Headers != NoHeaders || o.Headers >= Anthropic<<1 || o.Headers&XRateLimit != 0 && o.Headers&XRateLimitUnix != 0 {
		errs = append(errs, errors.New("limit: Headers: NoHeaders cannot be combined, and XRateLimit and XRateLimitUnix exclude each other"))
	}
	for _, code := range o.Silence {
		if !slices.Contains(notice.Codes, code) {
			errs = append(errs, fmt.Errorf("limit: Silence %q: write one of %s", code, strings.Join(notice.Codes, ", ")))
		}
	}
	return errors.Join(errs...)
}

// Proxies says which forwarding headers [ByIP] trusts. The zero Proxies trusts
// none: the client is the peer of the connection.
//
// Each proxy appends the address of its own peer to the header, which is therefore read
// from the right, and only if the peer of the connection is a proxy: an address within
// Trusted or, if only Hops is set, any peer. Reading stops at an entry that is not an
// address. docs/proxies.md has examples.
type Proxies struct {
	// Trusted lists the addresses of the proxies. The client is the first address from the
	// right that is outside Trusted, or the leftmost address if all are within it.
	Trusted []netip.Prefix

	// Hops is the number of proxies that a request passes, at most 64. The client is the
	// address that many entries from the right, or the peer if there are fewer. Without
	// Trusted, clients must not be able to connect directly.
	Hops int

	// Header is the header that the proxies write: "X-Forwarded-For", which "" means too,
	// "Forwarded" (RFC 7239), or a header with a single address that the peer overwrites, such
	// as "X-Real-IP" or "CF-Connecting-IP". There, Hops only says that the peer is a proxy.
	Header string

	// IPv6Prefix is how many bits of an IPv6 address identify a client: 32 to 128; 0 means 64.
	// A customer of a network can usually send from every address of a /64 or more.
	IPv6Prefix int
}

func (p *Proxies) config() *clientip.Config { return (*clientip.Config)(p) }

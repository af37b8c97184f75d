// Package feed publishes decisions as they happen, through Redis, so that operators see those of
// all instances: "limitctl watch" prints them.
//
//	stop := feed.Publish(limiter, client, nil)
//	defer stop()
//
// An instance publishes only while there is a subscriber. Without one, it sends one GET a second to
// Redis, and decisions cost nothing. Decisions never wait for the feed: what does not fit is left
// out and counted, admitted requests first. While Redis is unavailable, the feed pauses.
//
// The feed is for looking at, not for accounts: Redis delivers messages at most once, and
// an instance may send one again after a timeout.
package feed

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redisfacts"
	"github.com/routelimit/limit/internal/shown"
)

// Options configures [Publish]. The zero Options is ready to use.
type Options struct {
	// Prefix begins the name of the channel, and of the key by which subscribers are found; ""
	// means "limit". Braces are not allowed.
	Prefix string

	// Instance names this process, in at most 64 bytes. "" means the host, with the process id if
	// that is not 1, such as "web-3/4711".
	Instance string

	// Admitted is about how many admitted requests of this instance are published each second; 0
	// means 100, the most is 1,000, and a negative number means none. Of requests that were not
	// admitted, about 1,000 are.
	Admitted int

	// Name returns the text that stands for a key in [Rule].Key, such as that of
	// topkeys.Hashed. Nil means the key itself: addresses and users are then published.
	Name func(key string) string
}

// A Batch is what one instance publishes at a time: after 100 ms with decisions, and at
// least once a second.
type Batch struct {
	Instance string  `json:"instance"`
	Events   []Event `json:"events,omitempty"` // the oldest first

	// Admitted and Refused are how many decisions since the last Batch were left out.
	// Refused includes what was redirected or degraded, as for Event.Allowed.
	Admitted int64 `json:"admitted_not_shown,omitempty"`
	Refused  int64 `json:"refused_not_shown,omitempty"`
}

// An Event is a decision, or the return of what an admitted request took. Requests that could not
// be decided have none.
type Event struct {
	At           time.Time `json:"at"`     // on the clock of the store, in milliseconds
	Policy       string    `json:"policy"` // the route or the name of the set: see limit.Decision.Policy
	Method       string    `json:"method"` // "" outside HTTP, and OTHER for a method that is not standard
	Allowed      bool      `json:"allowed"`
	Outcome      string    `json:"outcome"`        // see limit.Decision.Outcome
	Mode         string    `json:"mode"`           // how it was decided: see core.Mode
	RetryAfterMS int64     `json:"retry_after_ms"` // see limit.Decision; -1 for limit.Never
	Rules        []Rule    `json:"rules,omitempty"`
}

// A Rule is one that refused or marked the request of an [Event].
type Rule struct {
	Name         string `json:"name"`
	Key          string `json:"key"`             // a client chose it, unless Options.Name did: escape it
	Shown        string `json:"shown,omitempty"` // a Key of several values as people read it, such as "203.0.113.9, alice"
	Limit        int64  `json:"limit"`
	WindowMS     int64  `json:"window_ms"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"` // -1 for limit.Never
}

// Publish publishes the decisions of a limiter until the program calls stop, once or more. It
// panics if the limiter or the client is nil, or if the options are invalid. It does not close the
// client, and needs its right to GET a key and to PUBLISH: see docs/watching.md.
//
// In a request, Publish takes the time to note the decision, if it is one that is
// published. Failures of Redis are not logged: package limit logs those that matter.
func Publish(limiter *limit.Limiter, client redis.UniversalClient, options *Options) (stop func()) {
	if limiter == nil {
		panic("feed: the limiter is nil: make it with limit.New")
	}
	client = redisfacts.Bounded(client, callTime, "feed")
	o := *cmp.Or(options, new(Options))
	const most = 1000
	switch {
	case len(o.Instance) > shown.MaxInstance:
		panic(fmt.Sprintf("feed: Instance %q: write at most %d bytes", o.Instance, shown.MaxInstance))
	case o.Admitted > most:
		panic(fmt.Sprintf("feed: Admitted %d: write at most %d, 0 for 100, or -1 for none", o.Admitted, most))
	}
	o.Instance = cmp.Or(o.Instance, shown.Instance())
	o.Admitted = cmp.Or(o.Admitted, 100)
	p := &publisher{limiter: limiter, client: client, options: &o}
	p.channel, p.watched = names(o.Prefix)
	p.kinds[refused].each, p.kinds[admitted].each = maxRefused, int64(max(0, o.Admitted))
	ctx, cancel := context.WithCancel(context.Background())
	go p.run(ctx)
	return cancel
}

// names returns the channel, and the key that exists while there is a subscriber. PUBLISH
// returns the number of receivers, but in a Cluster only those at one node.
func names(prefix string) (channel, watched string) {
	if strings.ContainsAny(prefix, "{}") {
		panic(fmt.Sprintf("feed: Prefix %q: write one without braces", prefix))
	}
	prefix = cmp.Or(prefix, "limit")
	return prefix + ":control:feed:1", redisfacts.ControlKey(prefix, "feed", "watched")
}

func (o *Options) event(r *http.Request, d *limit.Decision) Event {
	e := Event{
		At: d.At.UTC().Truncate(time.Millisecond), Policy: d.Policy, Method: shown.Method(r), Allowed: d.Allowed, Outcome: d.Outcome(),
		Mode: d.Mode.String(), RetryAfterMS: shown.Milliseconds(d.RetryAfter),
	}
	for rule := range d.Rules() {
		if rule.Allowed || rule.Shadow {
			continue
		}
		if o.Name != nil {
			rule.Key = o.Name(rule.Key)
		}
		e.Rules = append(e.Rules, Rule{
			Name: rule.Name, Key: rule.Key, Limit: rule.Limit, WindowMS: shown.Milliseconds(rule.Window),
			Remaining: rule.Remaining, RetryAfterMS: shown.Milliseconds(rule.RetryAfter),
		})
	}
	return e
}

package livepage

import (
	"net/netip"
	"sync"
	"time"

	"github.com/routelimit/limit"
)

const (
	keptRefusals = 50
	keptRules    = 4   // of a refusal
	keptKey      = 128 // bytes of a key: resolvers hash longer ones
)

// refusals are the last refused requests. An entry has a copy of each key in place, since a
// key may be part of a large header.
type refusals struct {
	mu      sync.Mutex
	last    int64 // number of the last one, from 1
	entries [keptRefusals]refusal
}

// A refusal is a refused request.
type refusal struct {
	number     int64
	since      time.Duration // since the collector began
	policy     string
	outcome    string
	mode       string
	retryAfter time.Duration
	banned     netip.Addr // of the client, if the request was refused by a ban
	rules      [keptRules]refusing
	count      int // of rules that refuse, which may be more
}

// A refusing is a rule that refused a request.
type refusing struct {
	limit.RuleDecision // without its Key
	key                [keptKey]byte
	keyLength          int
}

func (l *refusals) add(d *limit.Decision, policy string, since time.Duration, banned netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e := &l.entries[l.last%keptRefusals]
	e.number, e.since, e.policy = l.last, since, policy
	e.outcome, e.mode, e.retryAfter, e.banned, e.count = d.Outcome(), d.Mode.String(), d.RetryAfter, banned, 0
	for rule := range d.Rules() {
		if rule.Allowed || rule.Shadow || rule.Marked {
			continue
		}
		if e.count < keptRules {
			to := &e.rules[e.count]
			to.keyLength = copy(to.key[:], rule.Key)
			to.RuleDecision, to.Key = rule, ""
		}
		e.count++
	}
}

// newest returns copies of the refusals, the newest first.
func (l *refusals) newest() []refusal {
	list := make([]refusal, 0, keptRefusals)
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := l.last; n > 0 && n > l.last-keptRefusals; n-- {
		list = append(list, l.entries[n%keptRefusals])
	}
	return list
}

package feed

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/typedkey"
	"github.com/routelimit/limit/operate"
)

const (
	tick       = 100 * time.Millisecond
	ticks      = int64(time.Second / tick)
	maxRefused = 1000      // published a second
	maxMessage = 256 << 10 // bytes
	callTime   = time.Second
)

// A publisher collects decisions while there is a subscriber, and sends them.
type publisher struct {
	limiter          *limit.Limiter
	client           redis.UniversalClient
	options          *Options
	channel, watched string

	mu     sync.Mutex
	kinds  [2]kind // refused, admitted
	events []Event
}

type kind struct {
	each   int64 // to publish in a second
	credit int64 // tenths of one
	slots  int64 // how many more may be noted before the next tick
	missed int64 // left out since the last tick
}

const (
	refused = iota
	admitted
)

// run looks for a subscriber once a second, and serves it until it has gone.
func (p *publisher) run(ctx context.Context) {
	timer := time.NewTicker(time.Second)
	defer timer.Stop()
	for {
		if p.isWatched(ctx) {
			p.serve(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// isWatched reports whether there is a subscriber. A failure means that there is none.
func (p *publisher) isWatched(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return p.client.Get(ctx, p.watched).Err() == nil
}

// serve observes decisions and sends them, until there is no subscriber or Redis fails.
func (p *publisher) serve(ctx context.Context) {
	p.take() // what was noted as the last subscriber left
	defer operate.Observe(p.limiter, p.observe)()
	timer := time.NewTicker(tick)
	defer timer.Stop()
	sent, looked := time.Now(), time.Now()
	if !p.send(ctx, nil, [2]int64{}) { // which tells the subscriber that there is an instance
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := time.Now()
		events, missed := p.take()
		p.show(events)
		if len(events) > 0 || missed != [2]int64{} || now.Sub(sent) >= time.Second-tick/2 {
			if !p.send(ctx, events, missed) {
				return
			}
			sent = now
		}
		if now.Sub(looked) >= time.Second {
			if !p.isWatched(ctx) {
				return
			}
			looked = now
		}
	}
}

// observe notes a decision or a return, if there is room for it. A return that has none is
// not counted as missed, since its request was a decision.
func (p *publisher) observe(r *http.Request, d limit.Decision, err error) {
	if err != nil {
		return
	}
	p.mu.Lock()
	k := &p.kinds[kindOf(d.Allowed)]
	noted := k.slots > 0
	if noted {
		k.slots--
	} else if !d.GivenBack {
		k.missed++
	}
	p.mu.Unlock()
	if noted {
		e := p.options.event(r, &d)
		p.mu.Lock()
		p.events = append(p.events, e)
		p.mu.Unlock()
	}
}

// refill adds the slots of a tick, and saves none up.
func (k *kind) refill() {
	k.credit += k.each
	k.slots = min(k.slots+k.credit/ticks, (k.each+ticks-1)/ticks)
	k.credit %= ticks
}

// take begins the next tick, and returns the events of this one, the oldest first, and how many
// were left out.
func (p *publisher) take() (events []Event, missed [2]int64) {
	p.mu.Lock()
	events, p.events = p.events, nil
	for i := range p.kinds {
		k := &p.kinds[i]
		missed[i], k.missed = k.missed, 0
		k.refill()
	}
	p.mu.Unlock()
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	return events, missed
}

// show sets Shown for keys that join several values, by the rules that the limiter has now.
func (p *publisher) show(events []Event) {
	if p.options.Name != nil {
		return
	}
	forms := map[[2]string]typedkey.Form{} // by policy and rule
	for _, e := range events {
		for _, r := range e.Rules {
			forms[[2]string{e.Policy, r.Name}] = typedkey.Form{}
		}
	}
	if len(forms) == 0 {
		return
	}
	for policy, set := range operate.Policies(p.limiter) {
		for _, r := range set.Rules() {
			of := [2]string{policy, r.Name}
			if _, wanted := forms[of]; wanted {
				forms[of], _ = typedkey.Of(&r, operate.Proxies(p.limiter).IPv6Prefix)
			}
		}
	}
	for _, e := range events {
		for i := range e.Rules {
			r, form := &e.Rules[i], forms[[2]string{e.Policy, e.Rules[i].Name}]
			if text := form.Shown(r.Key); text != r.Key {
				r.Shown = text
			}
		}
	}
}

// send publishes events, with how many were left out, and reports whether Redis has them.
func (p *publisher) send(ctx context.Context, events []Event, missed [2]int64) bool {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return p.client.Publish(ctx, p.channel, encode(p.options.Instance, events, missed)).Err() == nil
}

// encode writes a [Batch]. Refused requests come before admitted ones where not all fit,
// and those that do not are added to the lost ones.
func encode(instance string, events []Event, lost [2]int64) []byte {
	texts := make([]json.RawMessage, len(events))
	size := 0
	for _, allowed := range []bool{false, true} {
		for i := range events {
			if events[i].Allowed != allowed {
				continue
			}
			text, err := json.Marshal(&events[i])
			if err != nil || size+len(text)+1 > maxMessage-1024 {
				lost[kindOf(allowed)]++
				continue
			}
			texts[i] = text
			size += len(text) + 1
		}
	}
	text, _ := json.Marshal(struct { // the fields of Batch, since its events are text already
		Instance string            `json:"instance"`
		Events   []json.RawMessage `json:"events"`
		Admitted int64             `json:"admitted_not_shown"`
		Refused  int64             `json:"refused_not_shown"`
	}{instance, slices.DeleteFunc(texts, func(text json.RawMessage) bool { return text == nil }), lost[admitted], lost[refused]})
	return text
}

func kindOf(allowed bool) int {
	if allowed {
		return admitted
	}
	return refused
}

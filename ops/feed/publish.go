package feed

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
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

	kinds [2]kind // refused, admitted

	mu     sync.Mutex
	events []Event
}

// A kind of decisions.
type kind struct {
	each   int64        // to publish in a second
	credit int64        // tenths of one
	slots  atomic.Int64 // how many more may be noted before the next tick
	missed atomic.Int64 // left out since the last batch
	_      [32]byte     // a cache line of its own
}

const (
	refused = iota
	admitted
)

func start(limiter *limit.Limiter, client redis.UniversalClient, o *Options) (stop func()) {
	p := &publisher{limiter: limiter, client: client, options: o}
	p.channel, p.watched = names(o.Prefix)
	p.kinds[refused].each = maxRefused
	p.kinds[admitted].each = int64(max(0, o.Admitted))
	ctx, cancel := context.WithCancel(context.Background())
	go p.run(ctx)
	return cancel
}

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
	for i := range p.kinds {
		k := &p.kinds[i]
		k.slots.Store(k.burst())
		k.missed.Store(0)
	}
	defer p.limiter.Observe(p.observe)()
	timer := time.NewTicker(tick)
	defer timer.Stop()
	sent, looked := time.Now(), time.Now()
	if !p.send(ctx, nil) { // which tells the subscriber that there is an instance
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := time.Now()
		events := p.take()
		if len(events) > 0 || p.missed() || now.Sub(sent) >= time.Second-tick/2 {
			if !p.send(ctx, events) {
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

// observe notes a decision, if there is room for it.
func (p *publisher) observe(r *http.Request, d limit.Decision, err error) {
	if err != nil {
		return
	}
	k := &p.kinds[kindOf(d.Allowed)]
	// Most calls of a busy program end here, so they only read the slots.
	if k.slots.Load() <= 0 || k.slots.Add(-1) < 0 {
		k.missed.Add(1)
		return
	}
	e := p.options.event(r, &d)
	p.mu.Lock()
	p.events = append(p.events, e)
	p.mu.Unlock()
}

// burst returns how many decisions one tick may have.
func (k *kind) burst() int64 { return (k.each + ticks - 1) / ticks }

// refill adds the slots of a tick.
func (k *kind) refill() {
	k.credit += k.each
	k.slots.Store(min(max(0, k.slots.Load())+k.credit/ticks, k.burst()))
	k.credit %= ticks
}

func (p *publisher) missed() bool {
	return p.kinds[refused].missed.Load() > 0 || p.kinds[admitted].missed.Load() > 0
}

// take returns the events of a tick, the oldest first, and begins the next one.
func (p *publisher) take() []Event {
	p.mu.Lock()
	events := p.events
	p.events = nil
	p.mu.Unlock()
	for i := range p.kinds {
		p.kinds[i].refill()
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	return events
}

// send publishes events, with the number of those that were left out, and reports
// whether Redis has them.
func (p *publisher) send(ctx context.Context, events []Event) bool {
	lost := [2]int64{p.kinds[refused].missed.Swap(0), p.kinds[admitted].missed.Swap(0)}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return p.client.Publish(ctx, p.channel, encode(p.options.Instance, events, lost)).Err() == nil
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

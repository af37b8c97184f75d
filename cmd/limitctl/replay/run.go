package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
	"github.com/routelimit/limit/internal/histogram"
)

// A Source is a log: an [*accesslog.Log] or an [*accesslog.Stream].
type Source interface {
	Next() *accesslog.Record
	Stats() accesslog.Stats
}

// latest is the latest time that is replayed: stores count to the year 2255.
const latest = int64(1)<<53 - 1

// Run decides the requests of a log. The error joins what is wrong with the policies, or
// is that of the log or of the context. After an error of the context, the result is
// that of the records until then.
func Run(ctx context.Context, log Source, options *Options) (*Result, error) {
	r, err := newRun(options)
	if err != nil {
		return nil, err
	}
	stopped := r.read(ctx, log)
	defer r.end()
	if failed, ok := log.(interface{ Err() error }); ok && stopped == nil && failed.Err() != nil {
		return nil, failed.Err()
	}
	r.end()
	return r.report(log), stopped
}

// end decides what is left, and ends the goroutines.
func (r *run) end() {
	if r.ended {
		return
	}
	r.ended = true
	for e := r.queue.pop(); e != nil; e = r.queue.pop() {
		r.hand(e)
	}
	r.sorted.close()
	if r.suggest != nil {
		r.suggest.close()
	}
}

// A run is a replay while it goes on.
type run struct {
	options  Options
	needs    needs
	notes    notes
	presence presence
	registry *registry
	places   *places
	queue    *queue
	sides    []*side       // the old policies, and the new ones if there are any
	sorted   *stage[event] // which decides
	suggest  *suggester
	finer    bool // whether a time has a fraction of a second
	result   Result

	now, begun  int64
	decided     bool
	ended       bool
	routes      []RouteResult // by place.route
	buckets     *buckets
	newBuckets  *buckets
	newly       *top[string]
	stays       histogram.Histogram
	stayCount   int64
	longest     time.Duration
	addressless int64
}

func newRun(given *Options) (*run, error) {
	o := given.withDefaults()
	if o.Reorder < -1 || o.MaxKeys < 0 || o.MaxClients < 0 || o.MaxSeries < 0 || o.Top < 0 {
		return nil, errors.New("replay: a negative number in Options: write 0 for the default")
	}
	r := &run{options: o, needs: needsOf(&o), registry: newRegistry(&o), queue: newQueue(max(1, o.Reorder)),
		buckets: newBuckets(), newBuckets: newBuckets(), newly: newTop[string](max(1000, 10*o.Top))}
	old, err := newSide(o.Policies, o.Exempt, o.Bar, &o, &r.presence, &r.notes)
	r.sides = []*side{old}
	if o.Compare != nil {
		exempt, bar := o.CompareExempt, o.CompareBar
		if exempt == nil && bar == nil {
			exempt, bar = o.Exempt, o.Bar
		}
		added, err2 := newSide(o.Compare, exempt, bar, &o, &r.presence, &r.notes)
		r.sides, err = append(r.sides, added), errors.Join(err, err2)
	}
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	r.places = newPlaces(r.sides)
	if !o.NoSuggestions {
		r.suggest = newSuggester(o.MaxSeries)
	}
	r.sorted = newStage(r.decide)
	return r, nil
}

// progressEvery is how many records are read between two calls of Options.Progress.
const progressEvery = 1 << 14

func (r *run) read(ctx context.Context, log Source) error {
	n := int64(0)
	for record := log.Next(); record != nil; record = log.Next() {
		if n++; n%progressEvery == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if r.options.Progress != nil {
				r.options.Progress(n)
			}
		}
		if record.Time < 0 || record.Time > latest {
			r.result.BadTimes++
			continue
		}
		if r.queue.full() {
			r.hand(r.queue.pop())
		}
		e := r.queue.next()
		r.fill(e, record)
		if e.place.url == nil {
			r.result.NotHTTP++
			continue
		}
		r.finer = r.finer || e.time%second != 0
		r.presence.read(e)
		r.queue.push()
		if r.options.Reorder < 0 {
			r.hand(r.queue.pop())
		}
	}
	return ctx.Err()
}

// hand hands a request on to be decided.
func (r *run) hand(e *event) {
	e.seen = r.presence.seen
	r.sorted.add(*e)
}

// fill copies what is needed of a record.
func (r *run) fill(e *event, from *accesslog.Record) {
	*e = event{time: from.Time, status: from.Status, place: r.places.of(from)}
	e.route = e.place.route
	if e.place.url == nil {
		return
	}
	e.client = r.registry.client(from.Client)
	e.user = r.registry.user(from.User)
	e.agent = r.registry.agent(from.UserAgent)
	if r.needs.query {
		e.query = from.Query
	}
	if r.needs.fields {
		e.fields = from.Fields
	}
}

// decide decides requests, each side in a goroutine, and counts them.
func (r *run) decide(batch []event) {
	for i := range batch {
		e := &batch[i]
		if r.decided && e.time < r.now {
			r.result.Late++
			e.time = r.now
		}
		if r.now = e.time; !r.decided {
			r.decided, r.begun = true, r.now
		}
	}
	var others sync.WaitGroup
	for i, s := range r.sides[1:] {
		others.Go(func() { s.decideAll(batch, i+1, r.needs) })
	}
	r.sides[0].decideAll(batch, 0, r.needs)
	others.Wait()
	for i := range batch {
		r.count(&batch[i], i)
	}
}

// count counts a request that both sides have decided.
func (r *run) count(e *event, i int) {
	r.now = e.time
	for len(r.routes) <= e.route {
		r.routes = append(r.routes, RouteResult{})
	}
	c, route := e.client, &r.routes[e.route]
	for _, s := range r.sides {
		if s.outcomes[i].undecided {
			r.result.Undecided++
			return
		}
	}
	old := &r.sides[0].outcomes[i]
	r.result.Requests++
	route.Requests++
	c.note(e, r.now)
	if !c.tracked {
		r.result.Untracked++
	}
	if c.key == "" {
		r.addressless++
	}
	switch {
	case old.exempt:
		r.result.Exempt++
	case len(e.place.matched[0].bound) == 0:
		r.result.NoRoute++
	}
	if old.refused {
		r.result.Refused++
		route.Refused++
		if old.keyless {
			r.result.RefusedNoKey++
		}
		r.refused(c, old)
	}
	r.buckets.add(r.now, old.refused)
	if len(r.sides) > 1 {
		r.compare(e, route, old.refused, r.sides[1].outcomes[i].refused)
	}
	if r.suggest != nil {
		r.suggest.see(e, r.now)
	}
}

// refused notes when a client was refused, and for how long.
func (r *run) refused(c *client, o *outcome) {
	if o.barred {
		r.result.Barred++
	}
	if c.refused == 0 {
		c.firstRefused = r.now
		if c.tracked {
			r.result.RefusedClients++
		}
	}
	c.refused++
	c.last = r.now
	if o.retryAfter == limit.Never {
		r.result.Stays.Never++
		return
	}
	until := r.now + o.retryAfter.Microseconds()
	if c.stayUntil == 0 || r.now > c.stayUntil {
		r.endStay(c)
		c.stayFrom = r.now
	}
	c.stayUntil = max(c.stayUntil, until)
	if !c.tracked {
		r.endStay(c)
	}
}

// endStay counts the stay of a client, if it has one.
func (r *run) endStay(c *client) {
	if c.stayUntil == 0 {
		return
	}
	stay := c.stayUntil - c.stayFrom
	r.stays.Add(stay, 1)
	r.stayCount++
	c.longest = max(c.longest, stay)
	r.longest = max(r.longest, time.Duration(stay)*time.Microsecond)
	c.stayFrom, c.stayUntil = 0, 0
}

func (r *run) compare(e *event, route *RouteResult, old, added bool) {
	if r.result.Comparison == nil {
		r.result.Comparison = new(Comparison)
	}
	c := r.result.Comparison
	switch {
	case old && added:
		c.BothRefuse++
	case old:
		c.OnlyOld++
		route.OnlyOld++
	case added:
		c.OnlyNew++
		route.OnlyNew++
		r.newly.add(e.client.address)
	default:
		c.BothAdmit++
	}
	r.newBuckets.add(r.now, added)
}

// Notes are sentences, each once. Numbers in them are of type int64.
type notes struct{ list []string }

func (n *notes) add(format string, args ...any) {
	for i, arg := range args {
		if number, ok := arg.(int64); ok {
			args[i] = commas(number)
		}
	}
	if text := fmt.Sprintf(format, args...); !slices.Contains(n.list, text) {
		n.list = append(n.list, text)
	}
}

// commas writes 1234567 as 1,234,567.
func commas(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

package replay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
	"github.com/routelimit/limit/internal/clientip"
	"github.com/routelimit/limit/internal/histogram"
)

// A Source is a log: an [*accesslog.Log] or an [*accesslog.Stream].
type Source interface {
	Next() *accesslog.Record
	Stats() accesslog.Stats
	Err() error
	Close()
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
	if err := log.Err(); err != nil && stopped == nil {
		return nil, err
	}
	result := r.report(log)
	if stopped == nil && len(result.Suggestions) > 0 && r.options.Again != nil {
		r.clients, r.suggest = nil, nil // their memory is needed again
		stopped = r.tryOut(ctx)
	}
	return result, stopped
}

// A run is a replay while it goes on. Each record goes through read, which sorts events by
// time, decide and count.
type run struct {
	options  Options
	notes    notes
	presence presence
	clients  map[string]*client // by their addresses
	texts    map[string]string  // some that were met, by themselves
	places   *places
	queue    queue
	sides    []*side // the old policies, and the new ones if there are any
	suggest  *suggester
	until    int64         // the last time to read; 0 unless suggestions are tried out, which leave out what moved
	request  *http.Request // of the current event
	agent    [1]string     // its header User-Agent
	finer    bool          // whether a time has a fraction of a second
	result   Result

	now         int64
	routes      []RouteResult // by place.route
	newly       *top
	buckets     *buckets // by the old policies
	stays       histogram.Histogram
	addressless int64
}

func newRun(given *Options) (*run, error) {
	o := given.withDefaults()
	if o.Reorder < -1 || o.MaxKeys < 0 || o.Top < 0 {
		return nil, errors.New("replay: a negative number in Options: write 0 for the default")
	}
	r := &run{options: o, clients: make(map[string]*client), texts: make(map[string]string), newly: newTop(o.Top), buckets: newBuckets(), presence: presence{keys: make(map[string]*sought)},
		request: &http.Request{Header: make(http.Header)}}
	r.queue = queue{late: max(0, o.Reorder), decide: r.decide}
	old, err := newSide(&o, r)
	r.sides = []*side{old}
	if o.Compare != nil {
		added, err2 := newSide(o.Compare, r)
		r.sides, err = append(r.sides, added), errors.Join(err, err2)
		r.result.Comparison = new(Comparison)
	}
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	r.places = newPlaces(r.sides)
	if !o.NoSuggestions {
		r.suggest = &suggester{most: o.maxSeries, weight: 1, groups: make(map[groupID]*group)}
	}
	return r, nil
}

// progressEvery is how many records are read between two calls of Options.Progress.
const progressEvery = 1 << 14

func (r *run) read(ctx context.Context, log Source) error {
	defer r.queue.end()
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
		e := event{time: record.Time, place: r.places.of(record),
			user: r.kept(record.User), agent: r.kept(record.UserAgent[:min(maxText, len(record.UserAgent))]),
			query: strings.Clone(record.Query), fields: record.Fields}
		if e.place.url == nil {
			r.result.NotHTTP++
			continue
		}
		if e.moved = moved(record); r.until > 0 && (e.moved || e.time > r.until) {
			continue
		}
		e.route = e.place.route
		e.client = r.client(r.address(record))
		r.finer = r.finer || e.time%second != 0
		r.presence.read(&e)
		r.queue.add(&e)
	}
	return ctx.Err()
}

// moved reports whether a server has redirected a request before any handler: to https, to
// another host, or to the path with a slash. Handlers that send a client elsewhere, as after a
// login, answer with 302, 303 or 307.
func moved(record *accesslog.Record) bool {
	return record.Status == http.StatusMovedPermanently || record.Status == http.StatusPermanentRedirect
}

// decide decides a request by each set of policies, and counts it.
func (r *run) decide(e *event) {
	if e.time < r.now {
		r.result.Late++
		e.time = r.now
	}
	if r.now = e.time; r.result.From.IsZero() {
		r.result.From = timeOf(r.now)
	}
	r.makeRequest(e)
	var outcomes [2]outcome
	for i, s := range r.sides {
		outcomes[i] = s.decide(e, e.place.matched[i], r.request)
	}
	if outcomes[0].undecided || outcomes[1].undecided {
		r.result.Undecided++
		return
	}
	r.count(e, &outcomes[0], &outcomes[1])
}

// makeRequest makes the request of an event. It is used again for the next one.
func (r *run) makeRequest(e *event) {
	e.place.url.RawQuery = e.query
	r.request.Method, r.request.Host, r.request.URL = e.place.method, e.place.host, e.place.url
	r.request.RemoteAddr = e.client.Address
	clear(r.request.Header)
	if e.agent != "" {
		r.agent[0] = e.agent
		r.request.Header["User-Agent"] = r.agent[:]
	}
	for field, value := range e.fields {
		kind, name, _ := strings.Cut(field, " ")
		switch {
		case value == "":
		case kind == "header":
			r.request.Header.Set(name, value)
		default:
			r.request.AddCookie(&http.Cookie{Name: name, Value: value, Quoted: strings.ContainsAny(value, " ,")})
		}
	}
}

// count counts a request by what the old policies and the new ones decide.
func (r *run) count(e *event, old, added *outcome) {
	for len(r.routes) <= e.route {
		r.routes = append(r.routes, RouteResult{})
	}
	c, route := e.client, &r.routes[e.route]
	r.result.Requests++
	route.Requests++
	c.Requests++
	c.Agent = e.agent
	r.result.Untracked += one(!c.tracked)
	r.addressless += one(c.key == "")
	r.result.Exempt += one(old.exempt)
	r.result.NoRoute += one(len(e.place.matched[0]) == 0)
	if old.refused {
		r.result.Refused++
		route.Refused++
		r.refused(c, old)
	}
	r.buckets.add(r.now, old.refused)
	if len(r.sides) > 1 {
		r.compare(e, route, old.refused, added.refused)
	}
	r.result.Redirected += one(e.moved)
	if r.suggest != nil && !e.moved {
		r.suggest.count(e)
	}
}

// address returns the address of the client of a record, in which the proxy may be the peer.
func (r *run) address(record *accesslog.Record) string {
	if len(r.options.Trusted) == 0 || record.Forwarded == "" {
		return record.Client
	}
	proxies := clientip.Config{Trusted: r.options.Trusted}
	if addr := proxies.Addr(record.Client, http.Header{"X-Forwarded-For": {record.Forwarded}}); addr.IsValid() {
		return addr.String()
	}
	return record.Client
}

// one counts what is true.
func one(counted bool) int64 {
	if counted {
		return 1
	}
	return 0
}

// refused notes when a client was refused, and for how long.
func (r *run) refused(c *client, o *outcome) {
	r.result.RefusedNoKey += one(o.keyless)
	r.result.Barred += one(o.barred)
	if c.Refused == 0 {
		c.First = timeOf(r.now)
		r.result.RefusedClients += one(c.tracked)
	}
	c.Refused++
	c.Last = timeOf(r.now)
	if o.retryAfter == limit.Never {
		r.result.Stays.Never++
		return
	}
	if r.now > c.stayUntil {
		r.endStay(c)
		c.stayFrom = r.now
	}
	c.stayUntil = max(c.stayUntil, r.now+o.retryAfter.Microseconds())
	if !c.tracked {
		r.endStay(c)
	}
}

// endStay counts the stay of a client, if it has one.
func (r *run) endStay(c *client) {
	if c.stayUntil == 0 {
		return
	}
	stay := time.Duration(c.stayUntil-c.stayFrom) * time.Microsecond
	r.stays.Add(stay.Microseconds())
	r.result.Stays.Count++
	c.Longest = max(c.Longest, stay)
	r.result.Stays.Max = max(r.result.Stays.Max, stay)
	c.stayFrom, c.stayUntil = 0, 0
}

func (r *run) compare(e *event, route *RouteResult, old, added bool) {
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
		r.newly.add(e.client.Address)
	default:
		c.BothAdmit++
	}
}

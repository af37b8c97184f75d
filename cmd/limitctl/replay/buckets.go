package replay

import (
	"maps"
	"slices"
	"time"

	"github.com/routelimit/limit/core"
)

// A Bucket is the requests of a span of time.
type Bucket struct {
	Start    time.Time `json:"start"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"`
}

const (
	second     = int64(1_000_000) // in microseconds
	minute     = 60 * second
	hour       = 60 * minute
	day        = 24 * hour
	maxBuckets = 500
)

// widths are the lengths of buckets. Each divides the next.
var widths = []int64{second, 2 * second, 10 * second, 30 * second, minute, 5 * minute, 10 * minute, 30 * minute, hour, 3 * hour, 6 * hour,
	12 * hour, day, 7 * day, 28 * day, 364 * day, 3640 * day, 364_000 * day}

// buckets counts requests by time. Only spans with requests are kept, so a single wrong
// time does not make the others coarser. As they grow too many, they become longer.
type buckets struct {
	width int // in widths
	spans map[int64]*span
	last  *span // of the number at
	at    int64
}

type span struct{ requests, refused int64 }

func newBuckets() *buckets { return &buckets{spans: make(map[int64]*span)} }

func (b *buckets) add(t int64, refused bool) {
	at := core.FloorDiv(t, widths[b.width])
	if b.last == nil || b.at != at {
		b.find(at, t)
	}
	b.last.requests++
	if refused {
		b.last.refused++
	}
}

func (b *buckets) find(at, t int64) {
	s := b.spans[at]
	if s == nil {
		s = new(span)
		b.spans[at] = s
		for len(b.spans) > maxBuckets && b.width+1 < len(widths) {
			b.widen()
			at = core.FloorDiv(t, widths[b.width])
			s = b.spans[at]
		}
	}
	b.last, b.at = s, at
}

func (b *buckets) widen() {
	factor := widths[b.width+1] / widths[b.width]
	b.width++
	wide := make(map[int64]*span)
	for at, s := range b.spans {
		w := wide[core.FloorDiv(at, factor)]
		if w == nil {
			w = new(span)
			wide[core.FloorDiv(at, factor)] = w
		}
		w.requests += s.requests
		w.refused += s.refused
	}
	b.spans = wide
}

func (b *buckets) list() (width time.Duration, list []Bucket) {
	list = []Bucket{}
	for _, at := range slices.Sorted(maps.Keys(b.spans)) {
		s := b.spans[at]
		list = append(list, Bucket{time.UnixMicro(at * widths[b.width]).UTC(), s.requests, s.refused})
	}
	return time.Duration(widths[b.width]) * time.Microsecond, list
}

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
var widths = []int64{second, 2 * second, 10 * second, 30 * second, minute, 5 * minute, 10 * minute, 30 * minute,
	hour, 3 * hour, 6 * hour, 12 * hour, day, 7 * day, 28 * day, 364 * day, 3640 * day, 364_000 * day}

// buckets counts requests by time. Only spans with requests are kept, so a single wrong
// time does not make the others coarser. As they grow too many, they become longer.
type buckets struct {
	width int // in widths
	spans map[int64]Bucket
}

func newBuckets() *buckets { return &buckets{spans: make(map[int64]Bucket)} }

func (b *buckets) add(t int64, refused bool) {
	b.join(core.FloorDiv(t, widths[b.width]), Bucket{Requests: 1, Refused: one(refused)})
	for len(b.spans) > maxBuckets && b.width+1 < len(widths) {
		narrow, factor := b.spans, widths[b.width+1]/widths[b.width]
		b.width++
		b.spans = make(map[int64]Bucket)
		for at, s := range narrow {
			b.join(core.FloorDiv(at, factor), s)
		}
	}
}

func (b *buckets) join(at int64, more Bucket) {
	s := b.spans[at]
	s.Requests += more.Requests
	s.Refused += more.Refused
	b.spans[at] = s
}

func (b *buckets) list() (width time.Duration, list []Bucket) {
	list = []Bucket{}
	for _, at := range slices.Sorted(maps.Keys(b.spans)) {
		s := b.spans[at]
		s.Start = timeOf(at * widths[b.width])
		list = append(list, s)
	}
	return time.Duration(widths[b.width]) * time.Microsecond, list
}

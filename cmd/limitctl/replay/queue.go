package replay

// An event is a request of the log, without the line that it was read from.
type event struct {
	time   int64 // microseconds
	seq    uint64
	client *client
	user   *user
	place  *place
	route  int // of place, as it was known then
	agent  *agent
	query  string
	fields map[string]string // see Record.Fields
	status int
	seen   uint64 // the keys of rules that a record read before the decision had: see presence
}

// A queue sorts events by time, as far as its size allows. Most lines of a log are in
// order: they form the run. The others are in a heap.
type queue struct {
	slab []event
	free []int32
	run  []int32 // a ring
	from int     // of the first in the run
	n    int     // in the run
	heap []int32
	seq  uint64
}

func newQueue(size int) *queue {
	q := &queue{slab: make([]event, size+1), run: make([]int32, size+1)}
	for i := size; i >= 0; i-- {
		q.free = append(q.free, int32(i))
	}
	return q
}

func (q *queue) before(a, b int32) bool {
	x, y := &q.slab[a], &q.slab[b]
	return x.time < y.time || x.time == y.time && x.seq < y.seq
}

// next returns an event to fill, which push then adds. The caller pops before, if the
// queue is full.
func (q *queue) next() *event { return &q.slab[q.free[len(q.free)-1]] }

func (q *queue) full() bool { return len(q.free) == 0 }

func (q *queue) push() {
	i := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	q.seq++
	q.slab[i].seq = q.seq
	if q.n == 0 || !q.before(i, q.run[(q.from+q.n-1)%len(q.run)]) {
		q.run[(q.from+q.n)%len(q.run)] = i
		q.n++
		return
	}
	q.heap = append(q.heap, i)
	for at := len(q.heap) - 1; at > 0; {
		parent := (at - 1) / 2
		if !q.before(q.heap[at], q.heap[parent]) {
			return
		}
		q.heap[at], q.heap[parent] = q.heap[parent], q.heap[at]
		at = parent
	}
}

// pop returns the earliest event, or nil. It is valid until the next push.
func (q *queue) pop() *event {
	var i int32
	switch {
	case len(q.heap) > 0 && (q.n == 0 || q.before(q.heap[0], q.run[q.from])):
		i = q.heap[0]
		last := len(q.heap) - 1
		q.heap[0] = q.heap[last]
		q.heap = q.heap[:last]
		q.sink()
	case q.n > 0:
		i = q.run[q.from]
		if q.from++; q.from == len(q.run) {
			q.from = 0
		}
		q.n--
	default:
		return nil
	}
	q.free = append(q.free, i)
	return &q.slab[i]
}

func (q *queue) sink() {
	for at := 0; ; {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(q.heap); child++ {
			if q.before(q.heap[child], q.heap[least]) {
				least = child
			}
		}
		if least == at {
			return
		}
		q.heap[at], q.heap[least] = q.heap[least], q.heap[at]
		at = least
	}
}

package replay

// A stage does work in a goroutine of its own, in the order in which it is added.
type stage[T any] struct {
	batch []T
	work  chan []T
	free  chan []T
	done  chan struct{}
}

// batchSize is how much work the goroutine gets at once.
const batchSize = 1024

func newStage[T any](do func([]T)) *stage[T] {
	s := &stage[T]{batch: make([]T, 0, batchSize), work: make(chan []T, 4), free: make(chan []T, 6), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for batch := range s.work {
			do(batch)
			clear(batch)
			s.free <- batch[:0] // has room for all batches
		}
	}()
	return s
}

func (s *stage[T]) add(work T) {
	if s.batch = append(s.batch, work); len(s.batch) == batchSize {
		s.flush()
	}
}

func (s *stage[T]) flush() {
	s.work <- s.batch
	select {
	case s.batch = <-s.free:
	default:
		s.batch = make([]T, 0, batchSize)
	}
}

// close returns when all work is done.
func (s *stage[T]) close() {
	s.flush()
	close(s.work)
	<-s.done
}

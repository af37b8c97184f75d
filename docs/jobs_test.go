package docs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// newExports makes the policy of the workers: it may have the name of a policy over HTTP.
func newExports(limiter *limit.Limiter) (*limit.Policy, error) {
	return limiter.Policy(limit.Named("exports",
		limit.PerUser(time.Hour, 2),
		limit.Rule{Name: "running", Key: limit.Everyone, Limit: 10, Algorithm: limit.Concurrency{}},
	))
}

// A worker runs jobs of a queue.
type worker struct {
	exports *limit.Policy
	export  func(ctx context.Context, j job) error
	later   func(j job, delay time.Duration) error // returns a job to the queue, for a time
}

type job struct{ customer, file string }

// run runs a job, or returns it to the queue until its customer has quota again.
func (w *worker) run(ctx context.Context, j job) error {
	d, err := w.exports.Take(ctx, limit.Request{Keys: map[string]string{"user": j.customer}})
	switch {
	case err != nil: // not decided: try again later
		return err
	case d.RetryAfter == limit.Never:
		return fmt.Errorf("job %s can never run", j.file)
	case !d.Allowed:
		return w.later(j, d.RetryAfter)
	}
	defer d.Release() // the slot of running
	return w.export(ctx, j)
}

// TestJobs runs three jobs of one customer and one of another, of which the third waits
// in the queue, and not in the worker.
func TestJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exports, err := newExports(limit.New(nil, nil))
		require.NoError(t, err)
		began := time.Now()
		queue, ran := make(chan job, 10), []string(nil)
		w := &worker{
			exports: exports,
			export: func(_ context.Context, j job) error {
				ran = append(ran, fmt.Sprint(j.file, " ", time.Since(began)))
				return nil
			},
			later: func(j job, delay time.Duration) error {
				time.AfterFunc(delay, func() { queue <- j })
				return nil
			},
		}
		for _, j := range []job{{"alice", "1.csv"}, {"alice", "2.csv"}, {"alice", "3.csv"}, {"bob", "4.csv"}} {
			queue <- j
		}
		for len(ran) < 4 {
			require.NoError(t, w.run(t.Context(), <-queue))
		}
		assert.Equal(t, []string{"1.csv 0s", "2.csv 0s", "4.csv 0s", "3.csv 1h0m0s"}, ran)
	})
}

// deliver runs a job that the queue may deliver again, such as after its worker has died.
func (w *worker) deliver(ctx context.Context, j job) error {
	d, err := w.exports.Take(ctx, limit.Request{
		Keys: map[string]string{"user": j.customer}, Hold: time.Minute, ID: j.file,
	})
	switch {
	case errors.Is(err, limit.ErrSettled): // it is done
		return nil
	case err != nil:
		return err
	case d.RetryAfter == limit.Never:
		return fmt.Errorf("job %s can never run", j.file)
	case !d.Allowed:
		return w.later(j, min(d.RetryAfter, time.Minute)) // by then, the units of a dead process are back
	}
	defer d.Release()
	if err := w.export(ctx, j); err != nil {
		return errors.Join(err, d.Settle(ctx, 0)) // as if it had not been delivered
	}
	return d.Settle(ctx, 1)
}

// TestDeliveredTwice delivers a job three times, twice at once, and another one whose user has
// no quota left then.
func TestDeliveredTwice(t *testing.T) {
	exports, err := newExports(limit.New(nil, nil))
	require.NoError(t, err)
	ran, put := 0, 0
	w := &worker{exports: exports, later: func(job, time.Duration) error { put++; return nil }}
	w.export = func(ctx context.Context, j job) error {
		if ran++; ran == 1 {
			return w.deliver(ctx, j)
		}
		return nil
	}
	assert.ErrorIs(t, w.deliver(t.Context(), job{"alice", "1.csv"}), limit.ErrSettled) // the second has settled it
	require.NoError(t, w.deliver(t.Context(), job{"alice", "1.csv"}))
	assert.Equal(t, 2, ran)
	export := w.export
	w.export = func(context.Context, job) error { return context.Canceled }
	require.ErrorIs(t, w.deliver(t.Context(), job{"alice", "2.csv"}), context.Canceled)
	w.export = export
	require.NoError(t, w.deliver(t.Context(), job{"alice", "2.csv"}))
	require.NoError(t, w.deliver(t.Context(), job{"alice", "3.csv"}))
	assert.Equal(t, []int{3, 1}, []int{ran, put})
}

// crawl fetches pages, at most as fast as the rules of fetches admit.
func crawl(ctx context.Context, fetches *limit.Policy, pages []string, fetch func(page string)) error {
	for _, page := range pages {
		d, err := fetches.Wait(ctx, limit.Request{})
		if err != nil {
			return err // ctx ends before the request is admitted
		}
		fetch(page)
		d.Release()
	}
	return nil
}

// TestCrawl fetches four pages at two a second.
func TestCrawl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetches, err := limit.New(nil, nil).Policy(limit.Named("fetches", limit.Global(time.Second, 2)))
		require.NoError(t, err)
		began := time.Now()
		var at []time.Duration
		require.NoError(t, crawl(t.Context(), fetches, []string{"a", "b", "c", "d"}, func(string) { at = append(at, time.Since(began)) }))
		assert.Equal(t, []time.Duration{0, 0, time.Second, time.Second}, at)
	})
}

// TestFailedJob holds that a job which settles for nothing costs nothing.
func TestFailedJob(t *testing.T) {
	exports, err := limit.New(nil, nil).Policy(limit.Named("exports", limit.PerUser(time.Hour, 1)))
	require.NoError(t, err)
	for range 2 {
		d, err := exports.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}, Settle: true})
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		require.NoError(t, d.Settle(t.Context(), 0))
	}
}

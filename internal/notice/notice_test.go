package notice

import (
	"os"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
)

func TestThrottle(t *testing.T) {
	var throttle Throttle
	start := time.UnixMicro(1_000_000)
	for _, step := range []struct {
		at      time.Duration
		skipped int64
		due     bool
	}{
		{0, 0, true},
		{0, 0, false},
		{time.Minute - 1, 0, false},
		{time.Minute, 2, true},
		{time.Minute + 1, 0, false},
		{3 * time.Minute, 1, true},
	} {
		skipped, due := throttle.Due(start.Add(step.at), time.Minute)
		assert.Equal(t, step.due, due, step.at)
		assert.Equal(t, step.skipped, skipped, step.at)
	}
}

// TestThrottleConcurrent checks that one of many callers writes, and that none
// of the others is lost from the count.
func TestThrottleConcurrent(t *testing.T) {
	var throttle Throttle
	var written atomic.Int64
	var wg sync.WaitGroup
	now := time.UnixMicro(1_000_000)
	for range 100 {
		wg.Go(func() {
			if _, due := throttle.Due(now, time.Minute); due {
				written.Add(1)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, written.Load())
	skipped, due := throttle.Due(now.Add(time.Minute), time.Minute)
	assert.True(t, due)
	assert.EqualValues(t, 99, skipped)
}

// TestThrottleAllocates checks that a line that is not due costs a request
// nothing.
func TestThrottleAllocates(t *testing.T) {
	var throttle Throttle
	now := time.UnixMicro(1_000_000)
	throttle.Due(now, time.Minute)
	assert.Zero(t, testing.AllocsPerRun(100, func() { throttle.Due(now, time.Minute) }))
}

func TestWrite(t *testing.T) {
	book := new(logbook.Book)
	log := Log{To: book.Log(), Silenced: []string{Outage, Clock}}
	Write(&log, Overflow, "limit: a line", 0, "policy", "login")
	Write(&log, Overflow, "limit: a line", 3)
	Write(&log, Clock, "limit: a line", 0)
	assert.Equal(t, []string{
		`level=WARN msg="limit: a line" code=LIMIT-204 policy=login`,
		`level=WARN msg="limit: a line" code=LIMIT-204 skipped=3`,
	}, book.Lines())
}

// TestCodes holds the list of codes to the constants, except those that a limiter does
// not write.
func TestCodes(t *testing.T) {
	text := must.Get(os.ReadFile("notice.go"))(t)
	var declared []string
	for _, code := range regexp.MustCompile(`= "(LIMIT-[1-3]\d+)"`).FindAllStringSubmatch(string(text), -1) {
		declared = append(declared, code[1])
	}
	assert.Equal(t, declared, Codes)
	assert.True(t, slices.IsSorted(Codes))
}

package telemetry

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/rules"
)

// counted is an Exporter that knows the last result only.
type counted struct {
	Exporter
	result string
}

func (c *counted) Inc() {}

func (c *counted) Counter(m *Metric, values ...string) Counting {
	if m == Requests {
		c.result = values[1]
	}
	return c
}
func (c *counted) Buckets(*Metric, ...string) *Buckets    { return NewBuckets(Used) }
func (c *counted) Histogram(*Metric, ...string) Measuring { return c }
func (c *counted) Observe(float64)                        {}

// TestResults checks that what a request meets is its result, for all words that a rule can
// say after refuse.
func TestResults(t *testing.T) {
	arguments := map[string]string{"redirect": " /busy", "wait": " 1ms"}
	seen := make(map[string]bool)
	const rule = "1/1h global refuse "
	for _, text := range rules.Complete(rule) {
		text += arguments[text[len(rule):]]
		var outcomes []string
		limiter := limit.New(nil, &limit.Options{Observe: func(_ *http.Request, d limit.Decision, err error) {
			require.NoError(t, err)
			c := &counted{}
			NewObserver(c).Observe(&d, err)
			assert.Equal(t, d.Outcome(), c.result, text)
			outcomes = append(outcomes, c.result)
		}})
		h := limiter.Limit(limit.MustParse(text))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 2 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
		require.Len(t, outcomes, 2, text)
		assert.Equal(t, "admitted", outcomes[0], text)
		assert.NotEqual(t, "admitted", outcomes[1], text)
		seen[outcomes[0]], seen[outcomes[1]] = true, true
	}
	for _, result := range results {
		assert.True(t, seen[result], result)
	}
}

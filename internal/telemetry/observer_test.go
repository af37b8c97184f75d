package telemetry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
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

var units = map[string]string{"{request}": "requests", "{store}": "stores", "{outage}": "outages", "{hold}": "holds", "{unit}": "units", "s": "seconds", "1": "0 to 1"}

// row returns the row of a metric in docs/metrics.md.
func row(m *Metric) string {
	names := "none"
	if m.Labels != nil {
		names = "`" + strings.Join(m.Labels, "`, `") + "`"
	}
	return fmt.Sprintf("| `%s` | `%s` | %s, %s | %s | %s |\n", m.Prom, m.Name, m.Kind, units[m.Unit], names, m.Help)
}

// TestDocumentation checks that docs/metrics.md has the table of metrics, and the
// values of labels.
func TestDocumentation(t *testing.T) {
	page := must.Get(os.ReadFile("../../docs/metrics.md"))(t)
	var table, values strings.Builder
	for _, m := range slices.Concat(OfDecisions, OfLimiters) {
		table.WriteString(row(m))
	}
	for _, label := range []string{"result", "verdict", "kind"} {
		fmt.Fprintf(&values, "| `%s` | `%s` |\n", label, strings.Join(Values[label], "`, `"))
	}
	_, modes, _ := strings.Cut(string(page), "| `mode` | how the decision was made |")
	for _, mode := range Values["mode"] {
		assert.Contains(t, modes, "`"+mode+"`")
	}
	assert.Contains(t, string(page), table.String())
	assert.Contains(t, string(page), values.String())
	assert.Equal(t, strings.Count(table.String(), "\n"), strings.Count(string(page), "\n| `rate_limiting"), "rows of other metrics")
	if t.Failed() {
		t.Logf("write\n%s\n%s", &table, &values)
	}
}

// TestNames checks that an exporter of OpenTelemetry for Prometheus turns the one name of
// a metric into the other: dots become underscores, and the unit and _total are added.
func TestNames(t *testing.T) {
	for _, m := range slices.Concat(OfDecisions, OfLimiters) {
		name := strings.ReplaceAll(m.Name, ".", "_")
		if m.Unit == "s" {
			name += "_seconds"
		}
		if m.Kind == Counter {
			name += "_total"
		}
		assert.Equal(t, m.Prom, name)
		assert.Equal(t, m.Kind == Histogram, m.Bounds != nil, m.Name)
		assert.True(t, slices.IsSorted(m.Bounds), m.Name)
		assert.NotEmpty(t, units[m.Unit], m.Name)
		for _, label := range m.Labels {
			assert.True(t, Values[label] != nil || slices.Contains([]string{"policy", "rule", "replaces"}, label), "the label %s of %s is not bounded", label, m.Name)
		}
	}
}

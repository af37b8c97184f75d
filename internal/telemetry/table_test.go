package telemetry

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/internal/must"
)

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

package promlimit_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/metrics/promlimit"
)

// A recording registerer notes the metrics that it is given.
type recording struct {
	prometheus.Registerer
	metrics map[string]string // labels by name
}

func (r *recording) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for desc := range descs {
		found := regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: {([^}]*)}`).FindStringSubmatch(desc.String())
		r.metrics[found[1]] = found[2]
	}
	return r.Registerer.Register(c)
}

// TestTable compares the metrics that are registered with those of docs/metrics.md.
func TestTable(t *testing.T) {
	page := must.Get(os.ReadFile("../../../docs/metrics.md"))(t)
	documented := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `(rate_limiting_\\w+)` \\| `[^`]+` \\| [^|]+ \\| ([^|]+) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = strings.NewReplacer("`", "", " ", "", "none", "").Replace(row[2])
	}
	r := &recording{prometheus.NewPedanticRegistry(), make(map[string]string)}
	promlimit.Watch(r, limit.New(nil, &limit.Options{Observe: promlimit.Observe(r)}))
	assert.Equal(t, documented, r.metrics)
}

package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/cmd/limitctl/replay"
)

func TestStay(t *testing.T) {
	stays := replay.Stays{Count: 39, P50: 30 * time.Second, P90: 57 * time.Second, P99: 57 * time.Second, Max: time.Minute}
	for want, s := range map[string]replay.Stays{
		"": {},
		"Time refused: median 30s, 90% at most 57s, 99% at most 57s, longest 1m (39 times).": stays,
		"1 request would be refused however long the client waits.":                          {Never: 1},
	} {
		assert.Equal(t, want, (&Report{Result: &replay.Result{Stays: s}}).Stay())
	}
}

func TestSummaryOfSkippedLines(t *testing.T) {
	r := &Report{Result: &replay.Result{Lines: 5000, NotHTTP: 5000}}
	assert.Equal(t, []string{"5,000 lines in the log.", "Skipped 5,000 lines with an invalid request line.", "There is no request to decide."}, r.Summary())
}

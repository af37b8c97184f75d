package live

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
)

// TestLookWithOtherLimits looks at keys with limits that the programs do not have. A store
// would write a shorter queue, for example.
func TestLookWithOtherLimits(t *testing.T) {
	rules := []struct{ programs, operator string }{
		{"30/1h per user queue burst 20", "300/1h per user queue burst 20"},
		{"30/1h per user leaky-bucket burst 20", "3000/1h per user leaky-bucket burst 5"},
		{"30/1h per user token-bucket burst 20", "300/1h per user token-bucket burst 2"},
		{"30/1h per user", "3/1h per user"},
		{"3000/1h per user", "3/1h per user"},
		{"30/1h per user sliding-cells", "3/1h per user sliding-cells"},
		{"30/1h per user sliding-counter", "3/1h per user sliding-counter"},
		{"30/1h per user fixed-window", "3/1h per user fixed-window"},
		{"30/1h per user concurrency", "3/1h per user concurrency"},
	}
	client := redistest.Real(t)
	var policies []Policy
	for i, r := range rules {
		name := fmt.Sprint("p", i)
		use(t, client, nil, name, r.programs, 15, limit.Request{Keys: map[string]string{"user": "alice"}})
		policies = append(policies, Policy{Name: name, Rules: rulesOf(r.operator)})
	}
	before := dump(t, client)
	l := open(t, client, Options{}, policies...)
	for _, r := range l.Rules() {
		s := must.Get(l.state(t.Context(), r, "alice", ""))(t)
		assert.True(t, s.Any(), r.Name)
	}
	assert.NotEmpty(t, ask(t, l, client, Question{At: 1}).Keys)
	assert.Equal(t, before, dump(t, client))
}

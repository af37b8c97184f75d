package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestSimulateAbsentKeys replays rules by what the log does not have: the answer says so
// first.
func TestSimulateAbsentKeys(t *testing.T) {
	var lines strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&lines, "192.0.2.1 - - [01/May/2024:12:%02d:%02d +0000] \"GET / HTTP/1.1\" 200 1\n", i/60, i%60)
	}
	anonymous := logFile(t, lines.String())
	for rules, want := range map[string]string{
		"20/1h per user": `This log cannot say what 20/1h per user would have refused: no request has the key of "20/1h per user".
`,
		"20/1h per header X-Api-Key; 1000/1h per ip": `20/1h per header X-Api-Key; 1000/1h per ip would have refused 500 requests (33.3%), of 1 client (100%).
That is without "20/1h per header X-Api-Key": no request of this log has the key. See the notes.
`,
	} {
		code, out, problem := run(t, "simulate", "--rules", rules, anonymous)
		assert.Equal(t, []any{0, ""}, []any{code, problem})
		assert.Contains(t, out, want+"\nNOTES\n- rule \""+strings.Split(rules, ";")[0]+"\": none of 1,500 requests has ")
		assert.Contains(t, out, "left out")
	}
	out, _ := exits(t, 0, "simulate", "--rules", "20/1h per user", "--json", anonymous)
	assert.Contains(t, out, `"refused": 0,`)
	assert.Contains(t, out, `"left_out": 1500`)
	assert.Contains(t, out, `none of 1,500 requests has a user in this log`)

	some := logFile(t, strings.Replace(lines.String(), " - - ", " - al ", 300))
	out, _ = exits(t, 0, "simulate", "--rules", "400/1h per user", some)
	assert.Contains(t, out, `400/1h per user would have refused 800 requests (53.3%), of 1 client (100%).
800 of the refused requests (100%) came without the key of a rule that refused them. All requests without the key share one quota: see the notes.

NOTES
- rule "400/1h per user": 80.0% of 1,500 requests have no user and share one quota
`)
	out, _ = exits(t, 0, "simulate", "--rules", "5/1h global", "--compare", file(t, "version: 1\npolicies:\n  a: {routes: [GET /], rules: 1/1h per cookie sid}\n"), anonymous)
	assert.Contains(t, out, "\nThat is without \"1/1h per cookie sid\" of the new policy: no request of this log has the key. See the notes.\n")
}

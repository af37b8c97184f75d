package doctor

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

// FuzzPrint prints findings that a server has had a part in: nothing that a
// terminal obeys comes out, and no line that is not the doctor's.
func FuzzPrint(f *testing.F) {
	f.Add(hostile, "127.0.0.1:6379", "redis-cli CONFIG SET save ''")
	f.Add("\x00\x9b\u2028\u202e", "\x1b]8;;http://x\x07", "\r\n\v\f")
	f.Add("\uFFFD\xff", "\uFFFD", "\xef\xbf")
	f.Fuzz(func(t *testing.T, found, node, fix string) {
		findings := []Finding{
			{Check: "keys", Verdict: Fail, Nodes: []string{node, "b:1"}, Found: found, Why: "why", Fix: []string{fix}},
			{Check: "role", Verdict: OK, Nodes: []string{"b:1"}, Found: words.Quote(found)},
		}
		var text bytes.Buffer
		require.NoError(t, Print(&text, findings))
		assertHarmless(t, text.String())
		require.Equal(t, 6, strings.Count(text.String(), "\n"))
		text.Reset()
		require.NoError(t, PrintJSON(&text, findings))
		assertHarmless(t, text.String())
		require.Equal(t, 2, strings.Count(text.String(), "\n"))
	})
}

package access

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAgents compares the search with one for each agent alone, on texts of few letters,
// so that agents overlap and begin with each other.
func TestAgents(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func(least, most int) string {
		b := make([]byte, least+random.IntN(most-least+1))
		for i := range b {
			b[i] = "abcde"[random.IntN(2+random.IntN(4))]
		}
		return string(b)
	}
	now, matches := time.Now(), 0
	for range 2_000 {
		var a agents
		until := make(map[string]time.Time)
		for range 1 + random.IntN(30) {
			text, at := word(minAgent, 8), now.Add(time.Duration(random.IntN(5))*time.Hour)
			if random.IntN(5) == 0 {
				at = time.Time{}
			}
			a.add(text, at)
			if before, listed := until[text]; listed {
				at = later(at, before)
			}
			until[text] = at
		}
		for range 20 {
			text := word(0, 40)
			want, got := make(map[time.Time]bool), make(map[time.Time]bool)
			for agent, at := range until {
				if bytes.Contains([]byte(text), []byte(agent)) {
					want[at] = true
				}
			}
			a.each(strings.ToUpper(text), func(at time.Time) { got[at] = true })
			require.Equal(t, want, got, "%q", text)
			matches += len(got)
		}
	}
	assert.NotZero(t, matches)
	t.Logf("%d matches", matches)
}

// BenchmarkAgents searches for 1,000 agents in the User-Agent of a browser, and in those
// that a client would write to make it costly.
func BenchmarkAgents(b *testing.B) {
	var a agents
	for i := range maxAgents {
		a.add(fmt.Sprintf("badbot%04dxyz", i), time.Time{})
	}
	for name, text := range map[string]string{
		"browser":  "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
		"begins":   strings.Repeat("bad", 342),
		"overlaps": strings.Repeat("badbot0500xy", 90),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a.each(text, func(time.Time) {})
			}
		})
	}
}

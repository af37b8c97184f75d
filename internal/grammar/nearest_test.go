package grammar

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNearest(t *testing.T) {
	words := []string{"token-bucket", "burst", "ban", "hidden", "wait", "exempt"}
	for misspelled, want := range map[string]string{
		"Burst": "burst", "brust": "burst", "bursts": "burst", "bust": "burst", "hiden": "hidden", "tok": "token-bucket", "TokenBucket": "token-bucket",
		"wiat": "wait", "bam": "ban", "exmept": "exempt", "": "", "b": "", "to": "", "5": "", "or": "", "silent": "", "bananas": "", "waiters": "",
		strings.Repeat("x", 1<<20): "", "é": "", "\xff\xff": "",
	} {
		assert.Equal(t, want, Nearest(misspelled, words), "%.20q", misspelled)
	}
}

package excerpt

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestExcerpt(t *testing.T) {
	short, long := strings.Repeat("a", Max), "ä"+strings.Repeat("a", Max-2)+"ä"
	assert.Equal(t, short, Start(short))
	assert.Equal(t, short, End(short))
	assert.Equal(t, long[:Max]+"…", Start(long))
	assert.Equal(t, "…"+strings.Repeat("a", Max-2)+"ä", End(long))
	assert.Equal(t, "a   b [0m", Printable("a\t\r\nb\x1b[0m"))
	assert.Equal(t, "ä  ", Printable("ä\u202e\u00a0"))
}

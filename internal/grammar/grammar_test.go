package grammar

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestValidName(t *testing.T) {
	for _, name := range []string{"a", "Login.v2_x-1", strings.Repeat("x", 64)} {
		assert.True(t, ValidName(name), name)
	}
	for _, name := range []string{"", "a b", "é", "a\n", "a:b", "\xff", strings.Repeat("x", 65)} {
		assert.False(t, ValidName(name), name)
	}
}

func TestQuoted(t *testing.T) {
	for _, text := range []string{"", "Try again later.", `a "b" \ c; (d)`, `\`, `"`, `\"`, "é"} {
		r := &Reader{Text: " " + Quote(text) + " x"}
		got, err := r.Quoted("a text")
		assert.NoError(t, err, text)
		assert.Equal(t, text, got)
		assert.Equal(t, "x", r.Peek(), text)
	}
	for _, text := range []string{"", "x", `"`, `"x`, "\"x\n\"", `"x\`, `"x\"`} {
		_, err := (&Reader{Text: text}).Quoted("a text")
		assert.Error(t, err, text)
	}
}

func TestParseKey(t *testing.T) {
	for _, text := range []string{"global", "ip", "(user or header X) and path id", "tenant or ip", "query or or cookie and"} {
		k, err := ParseKey(text)
		assert.NoError(t, err, text)
		assert.Equal(t, text, k.String())
	}
	k, _ := ParseKey("(path a or path b) and tenant")
	assert.Equal(t, []string{"a", "b"}, k.Names(Path))
	assert.Equal(t, []string{"tenant"}, k.Names(Func))
	for _, text := range []string{"", "ip ip", "ip or global", "or"} {
		_, err := ParseKey(text)
		assert.Error(t, err, text)
	}
}

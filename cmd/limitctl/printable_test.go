package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPrintable checks that an excerpt of the library keeps its form, and that text from
// elsewhere is escaped.
func TestPrintable(t *testing.T) {
	_, text := exitCode(newCommand(), errors.New("\ta\tb\n\tc\td\n\t^\x1b[2J\u202e"))
	assert.Equal(t, "\\ta\\tb\n\tc\\td\n\t^\\x1b[2J\\u202e", text)

	_, problem := exits(t, 3, "ban", "0.0.0.0/1", "--for", "1m", "--by", "ann", "--yes")
	assert.Contains(t, problem, "each of /8 or longer\n\t0.0.0.0/1\n\t^")
	bad := file(t, "version: 1\npolicies:\n  a: {routes: [/a], rules: 5/1x per ip}\n")
	_, _, problem = run(t, "top", "--redis", "redis://127.0.0.1:1", "--file", bad)
	assert.Regexp(t, `\n\t +a: .*\n\t +\^`, problem)
}

package limit_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// TestReadme holds the README to the code: its program is examples/gin, short
// enough to read at once, and its rules in text can be read.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(readme), "```go\n")
	require.True(t, ok)
	program, _, ok := strings.Cut(rest, "```\n")
	require.True(t, ok)

	example, err := os.ReadFile("examples/gin/main.go")
	require.NoError(t, err)
	_, code, ok := strings.Cut(string(example), "\npackage main\n")
	require.True(t, ok)
	assert.Equal(t, "package main\n"+code, program)
	assert.LessOrEqual(t, strings.Count(program, "\n"), 25)

	for _, tag := range regexp.MustCompile(`limit:"([^"-]+)"`).FindAllStringSubmatch(string(readme), -1) {
		_, err := limit.Parse(tag[1])
		assert.NoError(t, err)
	}
	for _, file := range []string{"README.md", "docs/algorithms.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		rules := regexp.MustCompile("(?m)^(?:\\| `|    )(\\d+[kM]?/[^`\n]+)").FindAllStringSubmatch(string(text), -1)
		assert.GreaterOrEqual(t, len(rules), 8, file)
		for _, rule := range rules {
			_, err := limit.Parse(rule[1])
			assert.NoError(t, err, rule[1])
		}
	}
	for _, key := range regexp.MustCompile("\\| `(per [^`]+|global)` \\|").FindAllStringSubmatch(string(readme), -1) {
		_, err := limit.Parse("5/2s " + key[1])
		assert.NoError(t, err, key[1])
	}
}

package doctor

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redisfacts"
)

// TestDocs holds the table of docs/doctor.md to the checks.
func TestDocs(t *testing.T) {
	text := must.Get(os.ReadFile("../../../../docs/doctor.md"))(t)
	var documented, made []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, m[1])
	}
	for _, c := range checks {
		made = append(made, c.id)
	}
	assert.Equal(t, made, documented)
	assert.Contains(t, string(text), " +"+strings.ToLower(strings.Join(redisfacts.Needed, " +"))+"\n")
	assert.Contains(t, string(text), " +"+strings.ToLower(strings.Join(redisfacts.NeededByControl, " +"))+"\n")
}

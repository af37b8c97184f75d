package shown

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
)

func TestShown(t *testing.T) {
	assert.Equal(t, "", Method(nil))
	assert.Equal(t, "GET", Method(&http.Request{}))
	assert.Equal(t, "POST", Method(&http.Request{Method: "POST"}))
	assert.Equal(t, "OTHER", Method(&http.Request{Method: strings.Repeat("X", 100_000)}))
	assert.Equal(t, int64(-1), Milliseconds(limit.Never))
	assert.Equal(t, int64(2), Milliseconds(time.Millisecond+1))
	assert.LessOrEqual(t, len(Instance()), MaxInstance)
	assert.NotEmpty(t, Instance())
}

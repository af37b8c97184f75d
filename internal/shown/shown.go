// Package shown names processes for the live page and the feed, and shows what the feed has of
// decisions.
package shown

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/door"
)

// MaxInstance is how many bytes an instance's name has at most.
const MaxInstance = 64

// Instance returns a name for this process: the host, with the process id if that is not 1, such as
// "web-3/4711".
func Instance() string {
	host, _ := os.Hostname()
	host = cmp.Or(host, "unknown")
	if pid := os.Getpid(); pid != 1 {
		host = fmt.Sprintf("%.50s/%d", host, pid)
	}
	return host[:min(len(host), MaxInstance)]
}

// Method returns the method of a request: "" outside HTTP, and OTHER for what clients invent, of
// any length.
func Method(r *http.Request) string {
	if r == nil {
		return ""
	}
	return door.KnownMethod(cmp.Or(r.Method, http.MethodGet))
}

// Milliseconds rounds up, so that a client that waits so long is not early. It is -1 for
// [limit.Never].
func Milliseconds(d time.Duration) int64 {
	if d == limit.Never {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

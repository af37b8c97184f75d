package livepage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/routelimit/limit"
)

// failed answers with an error of the limiter, of bans or of overrides. Their texts may have
// the key, also in the form that it has in Redis.
func (p *page) failed(w http.ResponseWriter, a *action, err error) {
	var wrong *problem
	var network net.Error
	var redis interface{ RedisError() }
	switch {
	case errors.As(err, &wrong):
		fail(w, wrong.status, "%s", wrong.text)
	case errors.Is(err, limit.ErrUndecided), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, io.EOF), errors.As(err, &network), errors.As(err, &redis):
		fail(w, http.StatusServiceUnavailable, "the store failed: %s. Try again. A change may have been made already.", p.cause(a, err, true, 300))
	default:
		fail(w, http.StatusBadRequest, "%s", p.cause(a, err, false, 1000))
	}
}

// cause returns the text of an error, unless it may have a key that is hidden. Errors of the
// store have names of Redis, in which the key is written in another way.
func (p *page) cause(a *action, err error, ofStore bool, most int) string {
	if p.options.HideKeys && a.ID != "" {
		key, ok := p.keyIDs.find(a.ID)
		quoted := strconv.Quote(key)
		if ofStore || !ok || strings.Contains(err.Error(), key) || strings.Contains(err.Error(), quoted[1:len(quoted)-1]) {
			return "the cause is not shown, since it may name the hidden key"
		}
	}
	return excerpt(err.Error(), most)
}

func fail(w http.ResponseWriter, status int, format string, args ...any) {
	answer(w, status, map[string]string{"error": fmt.Sprintf(format, args...)})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client disconnected
}

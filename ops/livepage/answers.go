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

// A problem is an error with a status of HTTP.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

func problemf(status int, format string, args ...any) error {
	return &problem{status, fmt.Sprintf(format, args...)}
}

// shown returns an error of the limiter, of bans or of overrides as operators see it: it may have the key.
func (p *page) shown(a *action, err error) error {
	var network net.Error
	var redis interface{ RedisError() }
	switch {
	case err == nil, errors.As(err, new(*problem)):
		return err
	case errors.Is(err, limit.ErrUndecided), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, io.EOF), errors.As(err, &network), errors.As(err, &redis):
		return problemf(http.StatusServiceUnavailable, "the store failed: %s. Try again. A change may have been made already.",
			p.cause(a, err, true, 300))
	}
	return problemf(http.StatusBadRequest, "%s", p.cause(a, err, false, 1000))
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

// answer answers with a body, or with a [*problem].
func answer(w http.ResponseWriter, body any, err error) {
	status := http.StatusOK
	if err != nil {
		wrong := err.(*problem)
		status, body = wrong.status, map[string]string{"error": wrong.text}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client disconnected
}

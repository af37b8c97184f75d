package livepage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/routelimit/limit"
)

// failed answers with an error of the limiter, of bans or of overrides.
func failed(w http.ResponseWriter, err error) {
	var p *problem
	var network net.Error
	var redis interface{ RedisError() }
	switch {
	case errors.As(err, &p):
		fail(w, p.status, "%s", p.text)
	case errors.Is(err, limit.ErrUndecided), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, io.EOF), errors.As(err, &network), errors.As(err, &redis):
		fail(w, http.StatusServiceUnavailable, "the store failed: %s. Try again. A change may have been made already.", excerpt(err.Error(), 300))
	default:
		fail(w, http.StatusBadRequest, "%s", excerpt(err.Error(), 1000))
	}
}

func fail(w http.ResponseWriter, status int, format string, args ...any) {
	answer(w, status, map[string]string{"error": fmt.Sprintf(format, args...)})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client disconnected
}

package throttle

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/internal/response"
)

// Bind is [New] for adapters of other frameworks, where a route is declared: see
// [adapter.Adapter.Bind]. The function that it returns gives a request to the handler: it returns a
// writer that waits before the bytes of the response pass, or a request with a body that waits
// before the handler gets them, or both. It takes nothing before the first byte, and needs no
// closing.
//
// The writer has the methods that handlers ask for. Hijack returns the connection as it is, and
// nothing slows what it carries. It has no Unwrap, which would lead past it: what an
// [http.ResponseController] sets, the writer sets.
func Bind[C any](l *limit.Limiter, a *adapter.Adapter[C], rules limit.RuleSet, options *Options) (
	slow func(http.ResponseWriter, *http.Request, C) (http.ResponseWriter, *http.Request), err error) {
	t, err := New(l, rules, options)
	if err != nil {
		return nil, err
	}
	if t.policy, err = a.Bind(l, "", t.rules); err != nil {
		return nil, err
	}
	return func(w http.ResponseWriter, r *http.Request, c C) (http.ResponseWriter, *http.Request) {
		return t.slow(w, r, func(r *http.Request, bytes int64) (limit.Decision, error) {
			return a.Decide(t.policy, r, c, bytes)
		})
	}, nil
}

func (t *Throttle) slow(w http.ResponseWriter, r *http.Request, decide decide) (http.ResponseWriter, *http.Request) {
	down := t.options.Of != Uploads && r.Method != http.MethodHead
	up := t.options.Of != Downloads && r.Body != nil && r.Body != http.NoBody
	if down {
		m := t.meter(r, decide)
		m.most = unsentPermit
		w = &slowWriter{response.Pass(w), m}
	}
	if up {
		m := t.meter(r, decide)
		m.length = max(0, r.ContentLength)
		slowed := *r
		slowed.Body = &slowBody{r.Body, m}
		r = &slowed
	}
	return w, r
}

type slowWriter struct {
	response.Passthrough
	meter *meter
}

var (
	_ io.StringWriter = (*slowWriter)(nil)
	_ io.ReaderFrom   = (*slowWriter)(nil)
	_ http.Flusher    = (*slowWriter)(nil)
	_ http.Hijacker   = (*slowWriter)(nil)
)

// Write writes p in parts, each at its slot, or returns the error of the context if that ends
// before.
func (w *slowWriter) Write(p []byte) (written int, err error) {
	w.readLength()
	for {
		allowed, err := w.meter.next(int64(len(p) - written))
		if err != nil {
			return written, err
		}
		part := p[written : written+int(allowed)]
		n, err := w.ResponseWriter.Write(part)
		w.meter.pass(int64(n))
		written += n
		if err == nil && n < len(part) {
			err = io.ErrShortWrite
		}
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// WriteString is Write for a string.
func (w *slowWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// ReadFrom copies r by Write, with a small buffer: 4 to 32 KiB, and no more than a permit.
func (w *slowWriter) ReadFrom(r io.Reader) (int64, error) {
	chunk := w.meter.throttle.chunk
	buffer := make([]byte, min(chunk, max(4<<10, chunk/4), 32<<10))
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buffer)
}

// CloseNotify implements http.CloseNotifier, which Gin's Context.Stream needs.
func (w *slowWriter) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(w.meter.ctx, func() { gone <- true })
	return gone
}

// readLength reads how long the response is, before its first byte, if the handler says it.
func (w *slowWriter) readLength() {
	if w.meter.passed > 0 {
		return
	}
	if v := w.Header()["Content-Length"]; len(v) == 1 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n > 0 {
			w.meter.length = n
		}
	}
}

// A slowBody is the body of a request that waits before bytes pass.
type slowBody struct {
	io.ReadCloser
	meter *meter
}

// Read reads, and returns at the slot of what it has read.
func (b *slowBody) Read(p []byte) (int, error) {
	if most := b.meter.throttle.chunk; int64(len(p)) > most {
		p = p[:most]
	}
	n, err := b.ReadCloser.Read(p)
	for paid := 0; paid < n; {
		allowed, wait := b.meter.next(int64(n - paid))
		if wait != nil {
			return 0, wait
		}
		b.meter.pass(allowed)
		paid += int(allowed)
	}
	return n, err
}

package limit

import (
	"io"
	"math"
	"net/http"
	"strconv"
)

// Slow returns what the handler of a request is to be called with instead of w
// and the request of the call: a writer that waits before the bytes of the
// response pass, or a body that waits before the handler gets them, or both. It
// takes nothing before the first byte, and needs no closing.
//
// The writer has the methods that handlers ask writers for. Hijack returns the
// connection as it is, and nothing slows what it carries. It has no Unwrap,
// which would lead past it: what an [http.ResponseController] sets, it sets.
func (t *Throttler) Slow(w http.ResponseWriter, call Call) (http.ResponseWriter, *http.Request) {
	r := call.Request
	down := t.options.Of != Uploads && r.Method != http.MethodHead
	up := t.options.Of != Downloads && r.Body != nil && r.Body != http.NoBody
	n := 0
	if down {
		n++
	}
	if up {
		n++
	}
	if n == 0 {
		return w, r
	}
	meters := t.meters(&call, n)
	if up {
		m := &meters[0]
		m.length = max(0, r.ContentLength)
		slowed := *r
		slowed.Body = &slowBody{r.Body, m}
		r = &slowed
	}
	if down {
		w = &slowWriter{passthrough{w}, &meters[n-1]}
	}
	return w, r
}

// A slowWriter is a response whose bytes wait for their turn.
type slowWriter struct {
	passthrough
	meter *meter
}

var (
	_ io.StringWriter = (*slowWriter)(nil)
	_ io.ReaderFrom   = (*slowWriter)(nil)
	_ http.Flusher    = (*slowWriter)(nil)
	_ http.Hijacker   = (*slowWriter)(nil)
	_ http.Pusher     = (*slowWriter)(nil)
)

// Write writes p in parts, each at its turn. It returns the error of the
// request's context if that ends before the turn of a part.
func (w *slowWriter) Write(p []byte) (int, error) {
	return slowly(w, p, w.ResponseWriter.Write)
}

// WriteString is Write for a string.
func (w *slowWriter) WriteString(s string) (int, error) {
	return slowly(w, s, func(part string) (int, error) { return io.WriteString(w.ResponseWriter, part) })
}

func slowly[B []byte | string](w *slowWriter, p B, write func(B) (int, error)) (written int, err error) {
	w.learnLength()
	for {
		allowed, err := w.meter.next(int64(len(p) - written))
		if err != nil {
			return written, err
		}
		part := p[written : written+int(allowed)]
		n, err := write(part)
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

// learnLength learns how long the response is, before its first byte, if the
// handler says it.
func (w *slowWriter) learnLength() {
	if w.meter.passed > 0 {
		return
	}
	if v := w.Header()["Content-Length"]; len(v) == 1 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n > 0 {
			w.meter.length = n
		}
	}
}

// ReadFrom copies r in parts, each at its turn. A file goes on as it would
// without the limit, by the sendfile of the system, if the response says its
// Content-Length.
func (w *slowWriter) ReadFrom(r io.Reader) (int64, error) {
	w.learnLength()
	// Only one io.LimitedReader may stand before a file for sendfile to see it.
	whole, ok := r.(*io.LimitedReader)
	if !ok {
		whole = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	var copied int64
	if to, ok := w.ResponseWriter.(io.ReaderFrom); ok {
		// Not beyond the Content-Length: net/http would send that, too.
		for left := w.meter.length - w.meter.passed; left > 0 && whole.N > 0; {
			allowed, err := w.meter.next(min(left, whole.N))
			if err != nil {
				return copied, err
			}
			part := io.LimitedReader{R: whole.R, N: allowed}
			n, err := to.ReadFrom(&part)
			w.meter.pass(n)
			copied += n
			left -= n
			whole.N -= allowed - part.N
			if err != nil || n < allowed {
				return copied, err
			}
		}
	}
	n, err := copySlowly(w, whole)
	return copied + n, err
}

// copySlowly copies by Write, with little memory for as long as a body lasts: 4
// to 32 KiB, and no more than a permit is large.
func copySlowly(w *slowWriter, r *io.LimitedReader) (int64, error) {
	if r.N <= 0 {
		return 0, nil
	}
	chunk := w.meter.throttler.chunk
	buffer := make([]byte, min(chunk, max(4<<10, chunk/4), 32<<10))
	return io.CopyBuffer(struct{ io.Writer }{w}, r, buffer)
}

// A slowBody is the body of a request whose bytes wait for their turn.
type slowBody struct {
	io.ReadCloser
	meter *meter
}

// Read reads, and returns when it is the turn of what it has read.
func (b *slowBody) Read(p []byte) (int, error) {
	if most := b.meter.throttler.chunk; int64(len(p)) > most {
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

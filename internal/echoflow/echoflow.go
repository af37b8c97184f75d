// Package echoflow is what the adapters for Echo v4 and v5 share. The versions have
// the same methods on types of different packages.
package echoflow

import (
	"errors"
	"net/http"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/internal/patterns"
	"github.com/routelimit/limit/internal/response"
	"github.com/routelimit/limit/throttle"
)

// A Context is Echo's, of any version.
type Context interface {
	Request() *http.Request
	SetRequest(*http.Request)
	Path() string
	Param(name string) string
}

// A Response is Echo's response writer, with pointers to its fields.
type Response struct {
	Echo interface {
		http.ResponseWriter
		Before(func())
	}
	Below     *http.ResponseWriter // the writer that it writes to
	Status    *int
	Committed *bool
}

// A Flow limits requests of one version of Echo. H is the type of its handlers, and M that of its
// middleware.
type Flow[C Context, H ~func(C) error, M ~func(H) H] struct {
	Limiter  *limit.Limiter
	Writer   func(C) http.ResponseWriter
	Response func(http.ResponseWriter) (Response, bool) // false for the writers of others

	// Problem returns an error that Echo's own HTTPErrorHandler answers with a document and its
	// status.
	Problem func(Document, error) error

	// The fields of the adapter's Limiter.
	Caller limit.Caller[C]
	Refuse func(C, limit.Decision) error
	Fail   func(C, error) error
}

// A call is a request, and the handler behind the middleware.
type call[C Context] struct {
	context C
	next    func(C) error
}

// Limit returns middleware for rules. It panics if they are invalid.
func (f *Flow[C, H, M]) Limit(rules limit.RuleSet) M {
	m, err := f.bind("", rules)
	if err != nil {
		panic(err)
	}
	return m
}

// Mount calls [adapter.Mount]. Whole says that paths in tags are those of the server, as
// those of a group are not: it has a prefix, which Echo does not export.
func (f *Flow[C, H, M]) Mount(api any, whole bool, add func(method, path string, h H, limits ...M)) error {
	return adapter.Mount(f.Limiter, api, func(path string, rules limit.RuleSet) (M, error) {
		if !whole {
			path = ""
		}
		return f.bind(path, rules)
	}, add)
}

func (f *Flow[C, H, M]) bind(pattern string, rules limit.RuleSet) (M, error) {
	a := f.adapter()
	policy, err := a.Bind(f.Limiter, pattern, rules)
	return func(next H) H {
		return func(c C) error {
			err := a.Serve(policy, f.Writer(c), c.Request(), call[C]{c, next})
			if err == nil {
				return nil
			}
			if response, ok := f.response(c); ok && *response.Committed && (errors.As(err, new(*limit.RefusedError)) || errors.Is(err, limit.ErrUndecided)) {
				return nil // it is answered
			}
			return err
		}
	}, err
}

// Throttle returns middleware that slows bodies. It panics if the rules are invalid.
func (f *Flow[C, H, M]) Throttle(rules limit.RuleSet, options *throttle.Options) M {
	slow, err := throttle.Bind(f.Limiter, f.adapter(), rules, options)
	if err != nil {
		panic(err)
	}
	return func(next H) H {
		return func(c C) error {
			response, ok := f.response(c)
			if !ok {
				return errors.New("limit: the response writer does not lead to that of Echo")
			}
			// Below Echo's own writer, where the status that it keeps stays true.
			w, r := slow(*response.Below, c.Request(), call[C]{c, next})
			*response.Below = w
			c.SetRequest(r)
			return next(c)
		}
	}
}

func (f *Flow[C, H, M]) adapter() *adapter.Adapter[call[C]] {
	a := &adapter.Adapter[call[C]]{
		Route:     func(c call[C]) (string, string) { return c.context.Request().Method, c.context.Path() },
		PathValue: pathValue[C],
		Next: func(c call[C], r *http.Request) (int, error) {
			c.context.SetRequest(r)
			err := c.next(c.context)
			return f.status(c.context, err), err
		},
		Caller: adapter.CallerOf(f.Caller, func(c call[C]) C { return c.context }),
		Record: f.record,
		SetStatus: func(c call[C], status int) {
			if response, ok := f.response(c.context); ok {
				*response.Status = status
			}
		},
		Answer: func(c call[C], status int, text []byte, err error) error {
			h := f.Writer(c.context).Header()
			h["X-Content-Type-Options"] = response.NoSniff
			return f.Problem(Document{status, text, h}, err)
		},
	}
	if f.Refuse != nil {
		a.Refuse = func(c call[C], d limit.Decision) error { return f.begin(c.context, f.Refuse(c.context, d)) }
	}
	if f.Fail != nil {
		a.Fail = func(c call[C], err error) error { return f.begin(c.context, f.Fail(c.context, err)) }
	}
	return a
}

// begin sends the headers of an answer that a function has not begun.
func (f *Flow[C, H, M]) begin(c C, err error) error {
	if response, ok := f.response(c); err == nil && ok && !*response.Committed {
		f.Writer(c).WriteHeader(*response.Status)
	}
	return err
}

// status returns the status of a response that has begun, or that begins if nothing
// writes it, or 0 for an error: the error handler of the server answers that.
func (f *Flow[C, H, M]) status(c C, err error) int {
	response, ok := f.response(c)
	if !ok || err != nil && !*response.Committed {
		return 0
	}
	return *response.Status
}

// pathValue returns a parameter as the request means it. Echo returns it as it was written.
func pathValue[C Context](c call[C], name string) string {
	v := c.context.Param(name)
	if c.context.Request().URL.RawPath == "" {
		return v
	}
	return patterns.Decoded(v)
}

// response returns the response of a context: false if middleware has put a writer there that does
// not unwrap to it.
func (f *Flow[C, H, M]) response(c C) (Response, bool) {
	for w := f.Writer(c); w != nil; w = unwrap(w) {
		if response, ok := f.Response(w); ok {
			return response, true
		}
	}
	return Response{}, false
}

func unwrap(w http.ResponseWriter) http.ResponseWriter {
	if wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		return wrapper.Unwrap()
	}
	return nil
}

// record puts a Recorder below Echo's response, and below the one that a response wraps where
// middleware of net/http stands between. It returns nil if it finds none: then only what is written
// before the handler returns is settled.
func (f *Flow[C, H, M]) record(c call[C]) *adapter.Recorder {
	var lowest Response
	for w := f.Writer(c.context); w != nil; w = unwrap(w) {
		if response, ok := f.Response(w); ok {
			lowest = response
		}
	}
	if lowest.Echo == nil {
		return nil
	}
	recorder := adapter.Record(*lowest.Below)
	*lowest.Below = recorder.Writer()
	// Middleware that has put its own writer there, such as Gzip, restores the one before.
	lowest.Echo.Before(func() { *lowest.Below = recorder.Follow(*lowest.Below) })
	return recorder
}

// A Document is a problem details document, as JSON.
type Document struct {
	Status int
	text   []byte
	header http.Header
}

// MarshalJSON also corrects the media type: Echo sets it just before it marshals. Set earlier, it
// would mislabel what an error handler of the program answers instead of this document.
func (d *Document) MarshalJSON() ([]byte, error) {
	if d.header.Get("Content-Type") == "application/json" {
		d.header["Content-Type"] = response.ProblemJSON
	}
	return d.text, nil
}

// String is for logs, which print the document beside the error.
func (d *Document) String() string { return http.StatusText(d.Status) }

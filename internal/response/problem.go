package response

import (
	"net/http"
	"strconv"
	"sync"
)

// A Problem is the problem details document (RFC 9457) of a request that is refused or could not be
// decided, with the types and the member of draft-ietf-httpapi-ratelimit-headers-11. It does not
// name the cause of a failure.
type Problem struct {
	Status  int
	Refused bool   // by rules, and not since the store is unavailable
	Detail  string // as JSON; "" means that of Retry
	Retry   int64  // the seconds of Retry-After, or -1

	Violated []string // the names of the rules that refuse, which need no escapes
	Limits   []int64  // of each of them, where they depend on the caller
}

// ProblemSize is enough for the document of most policies.
const ProblemSize = 320

// Append appends the document to b.
func (p *Problem) Append(b []byte) []byte {
	switch {
	case p.Status == http.StatusTooManyRequests:
		b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429`...)
	case p.Status == http.StatusForbidden: // a type of its own is not registered
		b = append(b, `{"type":"about:blank","title":"Forbidden","status":403`...)
	case p.Refused:
		b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":503`...)
	default:
		b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",`+
			`"title":"The rate limiter is unavailable","status":503`...)
	}
	switch {
	case p.Detail != "":
		b = append(append(b, `,"detail":`...), p.Detail...)
	case p.Retry >= 0:
		b = append(b, `,"detail":"Try again in `...)
		b = strconv.AppendInt(b, p.Retry, 10)
		b = append(b, ` s."`...)
	case p.Refused:
		b = append(b, `,"detail":"No wait helps: the request asks for more than a rule can ever hold."`...)
	}
	if p.Refused {
		b = append(b, `,"violated-policies":[`...)
		separator := `"`
		for _, name := range p.Violated {
			b = append(append(append(b, separator...), name...), '"')
			separator = `,"`
		}
		b = append(b, ']')
	}
	if len(p.Limits) > 0 {
		separator := `,"limits":{"`
		for i, limit := range p.Limits {
			b = append(append(append(b, separator...), p.Violated[i]...), `":`...)
			b = strconv.AppendInt(b, limit, 10)
			separator = `,"`
		}
		b = append(b, '}')
	}
	return append(b, "}\n"...)
}

// Write answers with the document. It is for refused requests, which an attacker sends as
// fast as it can: the buffers are used again.
func (p *Problem) Write(w http.ResponseWriter) {
	h := w.Header()
	h["Content-Type"], h["X-Content-Type-Options"] = ProblemJSON, NoSniff
	w.WriteHeader(p.Status)
	buffer := buffers.Get().(*[]byte)
	*buffer = p.Append((*buffer)[:0])
	w.Write(*buffer)
	buffers.Put(buffer)
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

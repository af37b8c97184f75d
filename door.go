package limit

import "github.com/routelimit/limit/internal/door"

// The packages adapter and operate reach these functions by package door, so that the
// documentation of this package is for the programs that limit requests.
func init() {
	door.Bind = (*Limiter).policy
	door.Serve = (*Policy).serve
	door.Decide = (*Policy).decide
	door.AnswerByOptions = (*Policy).answerByOptions
	door.Document = func(status int, err error) []byte {
		return appendDocument(make([]byte, 0, documentSize), status, err)
	}
}

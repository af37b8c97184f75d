package limit

import (
	"errors"

	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/engine"
)

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

	door.Engine = func(l *Limiter) *engine.Engine { return &l.engine }
	door.Proxies = func(l *Limiter) Proxies { return l.options.Proxies }
	door.Policies = (*Limiter).policies
	door.Declared = (*Limiter).declaredNames
	door.Peek = (*Limiter).peekKey
	door.Reset = (*Limiter).resetKey
	door.Key = (*Policy).key
	door.Observe = (*Limiter).observe
	door.Compared = Decision.compared
	door.Change = (*Limiter).change
	door.Validate = func(l *Limiter, rules RuleSet) error {
		return errors.Join(l.validate(rules), l.check(rules, door.Place{}))
	}
}

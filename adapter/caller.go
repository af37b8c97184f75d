package adapter

import "github.com/routelimit/limit"

// CallerOf returns a caller for an [Adapter] whose context C has the one of the
// framework in it, such as beside the next handler.
func CallerOf[C, D any](caller limit.Caller[D], context func(C) D) limit.Caller[C] {
	of := func(f func(D) string) func(C) string {
		if f == nil {
			return nil
		}
		return func(c C) string { return f(context(c)) }
	}
	return limit.Caller[C]{User: of(caller.User), Plan: of(caller.Plan), Class: of(caller.Class)}
}

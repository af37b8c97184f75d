package redisstore

import (
	"context"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// owe takes charges that are debts, on keys of one part, in one call.
func (p *part) owe(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	s := p.store
	now := s.now()
	call := lua.NewDebts(p.prefix, policy, now, s.grace, charges)
	number := s.calls.Add(1)
	c := &invocation{script: call.Script, keys: call.Keys, args: append(call.Args, number), timed: now == ""}
	reply, err := s.run(ctx, c)
	last := len(reply) - 1
	switch {
	case err != nil:
	case last < 0 || reply[last] != number:
		err = errWrongReply
	case c.late(reply):
		err = errLate
	default:
		return call.Decode(reply[:last], charges)
	}
	return core.Decision{}, unanswered(err, charges, c.end, c.uncertainty.Load())
}

package redisstore

import (
	"context"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// Account returns what the key of a charge owes and holds: see [core.AccountOf]. It calls Redis
// once for each 1,000 holds or so. A key that several algorithms charge shows no debt.
func (s *Store) Account(ctx context.Context, c core.Charge) (a core.Account, err error) {
	if err := core.ValidateCharges([]core.Charge{c}); err != nil {
		return a, err
	}
	p := s.partOf(c.Key)
	s.hasher.replaceOne(&c)
	script, keys, args := lua.NewAccount(p.prefix, s.now(), &c)
	for {
		reply, err := s.run(ctx, &invocation{script: script, keys: keys, args: args})
		if err == nil {
			err = lua.AddAccount(reply, &a)
		}
		if err != nil || reply[0] == 0 {
			return a, s.report(err)
		}
		args[len(args)-1] = reply[0]
	}
}

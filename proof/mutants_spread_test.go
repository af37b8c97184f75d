package proof

const (
	spread       = "-run=TestSpread$ ./redisstore"
	spreadFaults = "-run=TestSpread. ./redisstore"
)

// spreadMutants are faults in what a store does that spreads.
var spreadMutants = []mutant{
	{"gives nothing back after a refusal", "redisstore/spread.go", "if !allowed {", "if err != nil {", spread},
	{"gives nothing back after an error", "redisstore/spread.go", "if !allowed {", "if !allowed && err == nil {", spreadFaults},
	{"gives back what another part took", "redisstore/spread.go", "d := &decisions[i]\n", "d := &decisions[(i+1)%len(decisions)]\n", spreadFaults},
	{"admits if any part admits", "redisstore/spread.go", "allowed = allowed && decisions[i].Allowed", "allowed = allowed || decisions[i].Allowed", spread},
	{"admits what the first part admits", "redisstore/spread.go", "allowed = allowed && decisions[i].Allowed", "allowed = allowed && decisions[min(i, 0)].Allowed", spread},
	{"keeps leases of a refused request", "redisstore/lease.go", "_, err := p.leases(ctx, policy, charges, false)", "var err error", spread},
	{"gives back no longer than the caller waits", "redisstore/spread.go", "detached := context.WithoutCancel(ctx)", "detached := ctx", spreadFaults},
	{"waits for what is given back", "redisstore/spread.go", "case <-ctx.Done():", "case <-context.WithoutCancel(ctx).Done():", spreadFaults},
	{"tells of a refused request as if it had been admitted", "redisstore/spread.go", "\t\t\tif refresh {", "\t\t\tif false {", spread},
	{"mixes up the rules", "redisstore/spread.go", "outcomes[groups[i].at[j]] = o", "outcomes[j] = o", spread},
	{"has one time for all servers", "redisstore/spread.go", "d.SetTimeOf(groups[i].at[j], part.At)", "d.SetTimeOf(groups[i].at[j], d.At)", spreadFaults},
	{"adds up turns", "redisstore/spread.go", "d.Delay = max(d.Delay, part.Delay)", "d.Delay += part.Delay", spread},
	{"takes what a client caused for a failure of Redis", "redisstore/spread.go", "case !errors.Is(err, core.ErrUnavailable):\n\t\t\treturn err", "case !errors.Is(err, core.ErrUnavailable) && worst == nil:\n\t\t\treturn err", "-run=TestSpread.|Worst ./redisstore"},
	{"counts no losses", "redisstore/spread.go", "s.unreturned.Add(1)", "s.unreturned.Add(0)", spreadFaults},
	{"gives back to the rules in another order", "redisstore/return.go", "mine[j] = returns[i]", "mine[j] = returns[min(i, j)]", spread},
	{"resets a key that is elsewhere", "redisstore/return.go", "p := s.partOf(key)", "p := &s.part", spread},
	{"finds other leases", "redisstore/lease.go", "held[g.at[j]] = mine[j]", "held[j] = mine[j]", spread},
	{"leaves the slots to chance", "lua/part.go", "slot*of/slots == n", "slot*of/slots >= 0 || n < 0", "./lua"},
}

package proof

// guardMutants are faults in what is done while the store fails.
var guardMutants = []mutant{
	{"gives back by the clock of the store", "guard/leases.go", "\t\t\tr.At = r.Copied\n", "", "./guard"},
	{"gives back to the copies of many by what the store had left", "guard/leases.go", "\t\t\t\tr.Cost = 0\n", "", "./guard"},
	{"is cold", "guard/guard.go", "return s.count(ctx, policy, charges, d)", "return d, nil", "./guard"},
	{"trusts the store at once when it is back", "guard/own.go", "if last == never || c.OnError", "if true || c.OnError", "./guard"},
	{"trusts it a little too early", "guard/own.go", "now-last < span(c.Quota)+slack", "now-last < span(c.Quota)-slack", "./guard"},
	{"takes a bucket that is never full for one that forgets", "guard/own.go", " || s.instances == 1 && rate(c.Quota)", "", "./guard"},
	{"does not notice that it is gone again", "guard/guard.go", "cmp.Or(failure, s.look(ctx, policy, charges, now, probe))", "cmp.Or(failure)", "./guard"},
	{"lets requests that come at once pass the memory", "guard/guard.go", "case err == nil && !counted:", "case false && !counted:", "./guard"},
	{"believes an answer that comes late", "guard/own.go", "if !s.doubtful(charges, now) {", "if true {", "./guard"},
	{"counts a share only", "guard/own.go", "\town, err := c.take(policy)\n\tif", "\town, err := d, error(nil)\n\tif", "./guard"},
	{"rounds a share down", "guard/share.go", "return (a + b - 1) / b", "return a / b", "./guard"},
	{"takes every error for a failure of the store", "guard/guard.go", " || !errors.Is(err, core.ErrUnavailable) {", " {", "./guard"},
	{"opens on errors of requests", "guard/guard.go", "case ctx.Err() == nil && errors.Is(err, core.ErrUnavailable):", "case ctx.Err() == nil && err != nil:", "./guard"},
	{"opens when callers go away", "guard/guard.go", "case ctx.Err() == nil && errors.Is(err", "case errors.Is(err", "./guard"},
	{"ignores who wants to refuse", "guard/own.go", "charges[i].Cost > 0 {\n\t\t\treturn s.refuse", "charges[i].Cost > 1<<40 {\n\t\t\treturn s.refuse", "./guard"},
	{"allows silently", "guard/own.go", "d.Mode = core.ModeAllowed", "d.Mode = core.ModeLocal", "./guard"},
	{"charges what it only wants to know", "guard/guard.go", "\tc.look()\n", "", "./guard"},
	{"never opens", "guard/breaker.go", "b.failures >= failuresToOpen ||", "false ||", "./guard"},
	{"never opens for slowness", "guard/breaker.go", "b.slows |= 1", "b.slows |= 0", "./guard"},
	{"probes with all that come", "guard/breaker.go", "probe = now >= until && b.until.CompareAndSwap(until, probing)", "probe = now >= until", "./guard"},
	{"backs off for ever", "guard/breaker.go", "b.wait = min(max(firstWait, 2*b.wait), longestWait)", "b.wait = max(firstWait, 2*b.wait)", "./guard"},
	{"loses a probe whose caller goes away", "guard/breaker.go", "b.until.Store(now) // the next one may go at once", "", "./guard"},

	// What has been admitted.
	{"keeps what is refused after all", "guard/own.go", "undo(ctx, s.store, policy, charges, &d)", "_ = ctx", "./guard"},
	{"keeps what is refused after all in the memory", "guard/own.go", "undo(context.Background(), s.own, policy, c.charges, &own)", "_ = own", "./guard"},
	{"forgets leases that the store does not know", "guard/leases.go", "s.leased.Store(now)", "", "./guard"},
	{"loses leases that were taken alone", "guard/leases.go", "case s.doubts(&charges[i], now) || !asked:", "case !asked:", "./guard"},
	{"revives leases that have ended", "guard/leases.go", "case s.doubts(&charges[i], now) || !asked:", "case true:", "./guard"},
	{"gives back what the store never took", "guard/leases.go", "returns[0].Mode >= core.ModeLocal", "false", "./guard"},

	// A flood before the store.
	{"charges each to its own key in the store", "guard/overflow.go", "!known {", "false && !known {", "./guard"},
	{"takes keys that the store knows for new", "guard/overflow.go", ".ResetAfter > 0 && charges", ".ResetAfter > 1<<60 && charges", "./guard"},
	{"lets a key leave a shared one at once", "guard/own.go", "case w.has(i):", "case false:", "./guard"},
	{"does not see room that comes in between", "guard/guard.go", "if s.moved(policy, charges, asked) {", "if false && s.moved(policy, charges, asked) {", "./guard"},
	{"forgets that keys are crowded", "memstore/overflow.go", "raise(&s.crowded, k.entry.shared)", "", "./guard"},
}

package proof

// guardMutants are faults in what is done while the store fails.
var guardMutants = []mutant{
	{"is cold", "guard/guard.go", "return s.count(policy, charges, d)", "return d, nil", "./guard"},
	{"trusts the store at once when it is back", "guard/own.go", "return alone != never && c.OnError", "return false && c.OnError", "./guard"},
	{"trusts it a little too early", "guard/own.go", "now-alone < span(c.Quota)+slack", "now-alone < span(c.Quota)-slack", "./guard"},
	{"does not notice that it is gone again", "guard/guard.go", "s.look(ctx, policy, charges, now, probe))", "error(nil))", "./guard"},
	{"lets requests that come at once pass the memory", "guard/guard.go", "case err == nil && !counted:", "case false && !counted:", "./guard"},
	{"believes an answer that comes late", "guard/own.go", "if now := s.now(); s.doubtful(charges, now) {", "if now := s.now(); false {", "./guard"},
	{"counts a share only", "guard/own.go", "\tif _, err := c.take(policy); err != nil {", "\tif _, err := core.Mode(0), error(nil); err != nil {", "./guard"},
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
}

package proof

// algorithmMutants are faults in the algorithms but that of the exact window.
var algorithmMutants = []mutant{
	// Fixed and calendar windows.
	{"forgets what was spent when the clock steps back", "core/fixedwindow.go",
		"\t\tif w.start > w.from { // the clock has stepped back\n\t\t\tw.start = w.from\n\t\t}\n", "", memory},
	{"begins a window with each unit", "core/fixedwindow.go", "if q.anchored() && w.start <= now", "if false && w.start <= now", memory},
	{"keeps a window one microsecond too long", "core/fixedwindow.go", "now < w.start+q.Window {", "now <= w.start+q.Window {", memory},
	{"prolongs a window that is looked at", "core/fixedwindow.go", "if w.used == 0 {", "if w.count == 0 {", memory},
	{"begins weeks on Sunday", "core/calendar.go", "(int(t.Weekday()) + 6) % 7", "int(t.Weekday())", memory},
	{"takes a date that is shown again for its first time", "core/calendar.go", "day); now < until {", "day); true {", memory},
	{"counts an hour that comes twice once", "core/calendar.go", "if same(toward) {", "if true {", memory},

	// Cells.
	{"forgets a cell of which a part is in the window", "core/cells.go", "now, q.Limit, q.Cells+1", "now, q.Limit, q.Cells", memory},
	{"forgets cells ahead of now", "core/cells.go", "if to > c.cell-c.keep {", "if to == cell && to > c.cell-c.keep {", memory},
	{"dates cells that are laid anew ahead of now", "core/cells.go",
		"cell := min(((newest-i+1)*oldLength-1)/length, c.cell)", "cell := ((newest-i+1)*oldLength - 1) / length", memory},
	{"makes cells too short", "core/cells.go", "return (q.Window + q.Cells - 1) / q.Cells", "return q.Window / q.Cells", memory},
	{"does not clear cells that pass", "core/cells.go", "c.counts[cell%c.keep] = 0", "_ = cell", memory},

	// Counters.
	{"rounds the weight down", "core/counter.go", "if r > 0 {", "if false && r > 0 {", memory},
	{"forgets the previous window", "core/counter.go", "c.cur, c.prev = 0, c.current", "c.cur, c.prev = 0, 0", memory},
	{"weighs by the wrong part of the window", "core/counter.go", "c.left = (c.at+1)*q.Window - now", "c.left = now - c.at*q.Window", memory},
	{"forgets what was spent when the clock steps back", "core/counter.go",
		"c.index, c.current, c.previous = c.at, c.current+c.previous, 0", "c.index, c.current, c.previous = c.at, 0, 0", memory},

	// Token buckets.
	{"loses parts of tokens", "core/tokenbucket.go", "b.short, b.back = missing-came, rest;", "b.short, b.back = missing-came, 0;", memory},
	{"fills beyond the burst", "core/tokenbucket.go", "\t\tb.short, b.back = 0, 0\n", "\t\tb.back = 0\n", memory},
	{"begins full", "core/tokenbucket.go", "b.missing, b.part, b.last = q.Missing, 0, now", "b.missing, b.part, b.last = 0, 0, now", memory},
	{"does not date the last refill now", "core/tokenbucket.go", "b.last = min(b.last, now)", "", memory},
	{"lacks more than a lowered burst", "core/tokenbucket.go", "if missing > q.Burst {", "if false {", memory},
	{"does not fill before a unit is taken", "core/decide.go", "bucket.begin()", "_ = bucket", memory},

	// Leaky buckets and queues.
	{"rounds the schedule", "core/leakybucket.go", "s.aheadPart = rest % s.limit", "s.aheadPart = 0", memory},
	{"makes a key wait for more than a burst", "core/leakybucket.go", "s.end, s.part = now+longest, part", "_ = part", memory},
	{"does not count the unit that is passing", "core/leakybucket.go",
		"return whole + ceilDiv(rest+s.aheadPart, s.window)", "_ = rest\n\treturn whole", memory},
	{"saves up idle time", "core/leakybucket.go", "if s.end >= now {", "if true {", memory},
	{"gives the turn after one's own", "core/queue.go", "\tl.turn = l.schedule.until(0)\n\tl.schedule.add(n)\n",
		"\tl.schedule.add(n)\n\tl.turn = l.schedule.until(0)\n", memory},
	{"lets one more wait", "core/queue.go", "q.Burst+1, q.MaxWait", "q.Burst+2, q.MaxWait", memory},
	{"lets wait too long", "core/queue.go", "l.schedule.until(0) > l.maxWait", "l.schedule.until(0) > l.maxWait+1", memory},
	{"tells the turn of the last queue", "core/decide.go", "d.Delay = max(d.Delay, line.Delay())", "d.Delay = line.Delay()", memory},

	// Leases.
	{"renews what has ended", "core/concurrency.go", "range l.held[l.gone:] {", "range l.held {", memory},
	{"keeps a lease one microsecond too long", "core/concurrency.go", "l.held[l.gone].ends <= now {", "l.held[l.gone].ends < now {", memory},
	{"releases the lease of anybody", "core/concurrency.go", "if h.id == id {\n\t\t\tl.used -= h.units", "if true {\n\t\t\tl.used -= h.units", memory},
	{"does not shorten leases ahead of now", "core/concurrency.go", "l.held[i].ends, redated = now+l.length, true", "redated = true", memory},
	{"forgets leases when a decision only looks", "core/concurrency.go", "if redated {", "if redated || true {", memory},
	{"takes under the id of another", "core/decide.go", "leases.holder = c.Lease", "leases.holder = c.Lease | 1", memory},
	{"forgets leases that were renewed", "memstore/lease.go", "\te.expires = max(e.expires, leases.Expires())\n", "", memory},
	{"renews too late", "lease.go", "micros(c.Quota.Window) / 3;", "micros(c.Quota.Window) * 2;", "."},
	{"does not renew again after a failure", "lease.go", "\tif !l.done {\n\t\tl.timer.Reset", "\tif !l.done && err == nil {\n\t\tl.timer.Reset", "."},
	{"goes on renewing what is released", "lease.go", "\tl.timer.Stop()\n", "", "."},
	{"holds what a late request has taken", "policy.go", "\t\td.Release()\n\t\treturn late, nil", "\t\treturn late, nil", "."},
	{"holds what nobody observes", "policy.go", "if !observed {", "if !observed && false {", "."},
	{"holds after the handler", "limiter.go", "defer d.Release()", "_ = d", "."},
	{"releases before the handler", "ginlimit/ginlimit.go", "c.Next() // to", "// to", "./ginlimit"},
	{"holds after the handler", "ginlimit/ginlimit.go", "defer d.Release()", "_ = d", "./ginlimit"},
	{"holds after the handler", "echolimit/echolimit.go", "defer d.Release()", "_ = d", "./echolimit"},

	{"divides products of 64 bits", "core/muldiv.go", "if high >= uint64(c) {", "if high > 0 {", memory},

	// Their twins in the script.
	{"forgets what was spent when the clock steps back", "lua/fixedwindow.lua",
		"if start > s.from then start, s.redated = s.from, true end", "", redis7},
	{"keeps a window one microsecond too long", "lua/fixedwindow.lua", "now < start + rule.window", "now <= start + rule.window", redis7},
	{"forgets cells ahead of now", "lua/cells.lua", "if at > cell then at = cell end", "if at > cell then at = -1 end", redis7},
	{"forgets when cells are laid anew", "lua/cells.lua", "if relaid then at = floordiv((at + 1)*old - 1, length) end",
		"if relaid then at = -1 end", redis7},
	{"rounds the weight down", "lua/counter.lua", "return rest > 0 and whole + 1 or whole", "return whole", redis7},
	{"loses parts of tokens", "lua/tokenbucket.lua", "rest = rest + part", "", redis7},
	{"lacks more than a lowered burst", "lua/tokenbucket.lua", "missing > rule.burst", "false", redis7},
	{"rounds the schedule", "lua/leakybucket.lua", "s.part = rest % s.rule.limit", "s.part = 0", redis7},
	{"lets wait too long", "lua/leakybucket.lua", "s.delay > s.rule.wait and room > 0", "s.delay > s.rule.wait + 1 and room > 0", redis7},
	{"keeps a lease one microsecond too long", "lua/concurrency.lua", "u56(value, i) <= now do", "u56(value, i) < now do", redis7},
	{"does not shorten leases ahead of now", "lua/concurrency.lua", "u56(s.leases, j - LEASE) > last do", "false do", redis7},
	{"takes under the id of another decision", "lua/concurrency.lua", "(at - 1) / rule.stride * 8", "8", redis7},
	{"tells when the first lease ends for any number", "lua/concurrency.lua", "n = n - u24(s.leases, i + 15)", "n = 0", redis7},
	{"takes bytes between two fields for an id", "lua/lease.lua", "if (i - 8) % LEASE == 0 then", "if true then", redis7},
	{"does not release what has ended", "lua/lease.lua", "units > 0 or ended > 0", "units > 0", redis7},
	{"leaves keys without leases", "lua/lease.lua", "call('DEL', keys[k])", "call('SET', keys[k], 'j' .. be24(0))", redis7},
	{"is exact to 53 bits only", "lua/small.lua", "if product < 9007199254740992 then", "if true then", redis7},
}

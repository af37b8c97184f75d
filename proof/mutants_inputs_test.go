package proof

import "fmt"

// badInputRow returns what runs one row of the table of bad inputs.
func badInputRow(n int) string { return fmt.Sprintf("-run=TestBadInputs/^%02d_ ./proof", n) }

// inputMutants are faults in what is made of bad input, each with the row that
// finds it.
var inputMutants = []mutant{
	{"does not look at other keys before it asks", "line.go", "l != w.line && l.head().ticket < w.ticket {", "l != w.line && l.head().ticket < w.ticket && false {", "-run=Wait . ./proof"},
	{"has all ask at a time", "line.go", "if next.due.After(now) || !next.fits(w, d, &spoken, l.waiters[:i]) {", "if next.due.After(now) || !next.fits(w, d, &spoken, l.waiters[:i]) && false {", "-run=Wait . ./proof"},
	{"lets who goes to another line stand at its end", "line.go", "l.waiters = slices.Insert(l.waiters, l.find(w.ticket), w)", "l.waiters = append(l.waiters, w)", "-run=Wait . ./proof"},
	{"tells a client to come too early", "headers.go", "wait += time.Duration(scatter", "wait -= time.Duration(scatter", "-run=Jitter ."},
	{"tells all the same", "headers.go", "wait += time.Duration(scatter(uint64(d.core.At))", "wait += time.Duration(scatter(0)", "-run=Jitter ."},
	{"logs whatever clients cause", "notices.go", "now.Sub(*last) < noticeEvery", "now.Sub(*last) < 0", "-run=Notice ."},
	{"does not see that a quota is charged twice", "notices.go", "found && other != p", "found && other == p", "-run=Notice ."},
	{"does not see where it is made", "notices.go", "\"net/http.serverHandler.ServeHTTP\"", "\"\"", "-run=Notice ."},
	{"lets pass what could not be decided", "limiter.go", "case err != nil:\n\t\t\t(&UndecidedError{Err: err}).ServeHTTP(w, r)\n\t\tcase d.Allowed:",
		"case false:\n\t\t\t(&UndecidedError{Err: err}).ServeHTTP(w, r)\n\t\tcase d.Allowed || err != nil:", badInputRow(9)},
	{"takes a cost below 0 for none", "cost.go", `return 0, fmt.Errorf("cost %d: write 0 or more", n)`, "_ = fmt.Sprint\n\t\treturn 0, nil", badInputRow(9)},
	{"takes spellings of an address for many clients", "internal/clientip/address.go", "ip.Unmap()", "ip", badInputRow(30)},
	{"believes what is behind the last proxy", "internal/clientip/clientip.go", "len(c.Trusted) > 0 && !c.trusts(hop)", "false", badInputRow(24)},
	{"joins keys without their lengths", "keyresolver.go", "b.WriteString(strconv.Itoa(len(v)))", "", badInputRow(49)},
	{"keeps long keys", "keyresolver.go", "if len(key) <= maxKey && ", "if ", badInputRow(48)},
	{"waits for a turn without a queue", "lua/lua.go", "verdict <= 1+l.longest:", "true:", "./lua"},
	{"tells what is left below 0", "lua/lua.go", "left < 0 || ", "", badInputRow(54)},
}

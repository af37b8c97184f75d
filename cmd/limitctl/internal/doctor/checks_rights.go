package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/internal/redisfacts"
)

// What the user of the program may do, and whether the server accepts it.

func writable(f *RedisFacts, n *Node) result {
	switch rights := &n.Rights; {
	case rights.WriteErr != "":
	case rights.Err != nil:
		return skipped("EVAL: %v", rights.Err)
	case !rights.Writable:
		return skipped("this user may not run a command that shows it; see the check permissions")
	default:
		return ok("it accepts writes")
	}
	r := Fail.because("%s", n.Rights.WriteErr)
	switch word, _, _ := strings.Cut(n.Rights.WriteErr, " "); word {
	case "READONLY":
		return r.change("point the program at the primary")
	case "OOM":
		return r.change("raise maxmemory, see the check memory")
	case "MISCONF":
		return r.change("see the check persistence: the disk fails, or is full")
	case "NOREPLICAS":
		return r.change("bring its replicas back, see the check replicas")
	}
	return r
}

func permissions(f *RedisFacts, n *Node) result {
	if n.Rights.Err != nil {
		return skipped("EVAL: %v", n.Rights.Err)
	}
	refused := n.Rights.Refused()
	for i, command := range refused {
		refused[i] = fmt.Sprintf("%s (%s)", command, n.Rights.Of[command])
	}
	untried := slices.DeleteFunc(slices.Clone(redisfacts.Needed), func(command string) bool {
		_, tried := n.Rights.Of[command]
		return tried
	})
	user, name := userNames(n.User)
	fix := redisfacts.Grant(name, f.Prefix)
	switch {
	case refused == nil:
		found := user + " may run all that a decision needs"
		if len(untried) > 0 {
			found += "; not tried: " + strings.Join(untried, ", ")
		}
		return ok("%s", found)
	case len(refused) == 1 && n.Rights.Of["INFO"] != "":
		return Warn.because("%s may not run %s: a failover that loses the writes of the last second may go unnoticed", user, refused[0]).
			change(fix)
	}
	return Fail.because("%s may not run %s", user, strings.Join(refused, ", ")).change(fix)
}

// userNames returns the name of a user in a sentence and in a command.
func userNames(name string) (sentence, command string) {
	switch {
	case name == "":
		return "this user", "<user>"
	case !plainName(name):
		return "user " + words.Quote(name), "<user>"
	}
	return "user " + words.Quote(name), name
}

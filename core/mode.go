package core

import "strconv"

// OnError says what a rule does while the store fails with [ErrUnavailable]. The
// zero value is [Local].
type OnError uint8

// What a rule can do while the store fails.
const (
	Local  OnError = iota // this process decides by its own counts
	Allow                 // the rule admits everything
	Refuse                // the rule refuses everything
)

var onErrorWords = [...]string{"local", "allow", "refuse"}

// String returns the word for o in the text grammar.
func (o OnError) String() string {
	if int(o) < len(onErrorWords) {
		return onErrorWords[o]
	}
	return "on-error " + strconv.Itoa(int(o))
}

// A Mode is how a decision was made: by the store (exact, overflow), from memory of its refusals
// (remembered), without the store as OnError of a rule says (local, allowed, refused), or before
// any rule, by lists of the program (exempt, barred). ModeAllowed, and ModeLocal with several
// instances, may admit more than the limit.
type Mode uint8

// The modes. No store returns ModeExempt or ModeBarred: package limit makes such decisions
// before it asks one.
const (
	ModeExact      Mode = iota // by the store, each charge on the quota of its own key
	ModeOverflow               // by the store, on overflow quotas that keys share: never above the limit, maybe below
	ModeRemembered             // refused, since the store refused the same less than a second ago
	ModeLocal                  // by this process alone
	ModeAllowed                // admitted without deciding a rule with [Allow]
	ModeRefused                // refused because of a rule with [Refuse]
	ModeExempt                 // admitted without asking any rule, since the program exempts the client
	ModeBarred                 // refused without asking any rule, since the program bars the client
)

var modeWords = [...]string{"exact", "overflow", "remembered", "local", "allowed", "refused", "exempt", "barred"}

// String returns a word for logs and metrics.
func (m Mode) String() string {
	if int(m) < len(modeWords) {
		return modeWords[m]
	}
	return "mode " + strconv.Itoa(int(m))
}

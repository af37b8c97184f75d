package core

import "strconv"

// OnError is what a rule wants while the store fails with [ErrUnavailable].
// The zero value is [Local].
type OnError uint8

// What a rule may want.
const (
	Local  OnError = iota // this process decides, by what it remembers
	Allow                 // the rule lets everything pass
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

// A Mode is how a decision was made.
type Mode uint8

// The modes. In those from ModeLocal on the store had no say, and more than the
// limit may be admitted in ModeAllowed, and by several instances in ModeLocal.
const (
	ModeExact      Mode = iota // by the store, each charge on the quota of its own key
	ModeOverflow               // by the store, on quotas that keys share for want of memory: never above the limit, maybe below
	ModeRemembered             // refused, since the store has refused the same less than a second ago
	ModeLocal                  // by this process alone
	ModeAllowed                // admitted, and a rule that wants [Allow] was not asked
	ModeRefused                // refused because a rule wants [Refuse]
)

var modeWords = [...]string{"exact", "overflow", "remembered", "local", "allowed", "refused"}

// String returns a word for logs and metrics.
func (m Mode) String() string {
	if int(m) < len(modeWords) {
		return modeWords[m]
	}
	return "mode " + strconv.Itoa(int(m))
}

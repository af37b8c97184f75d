package limit

import "github.com/routelimit/limit/core"

// The modes: how a [Decision] was made.
const (
	ModeExact      = core.ModeExact      // by the store
	ModeOverflow   = core.ModeOverflow   // by the store, on a quota that keys share beyond MaxKeys: never above the limit
	ModeRemembered = core.ModeRemembered // refused by this process, which remembers a refusal of the store: see package refusals
	ModeLocal      = core.ModeLocal      // by this process, without the store
	ModeAllowed    = core.ModeAllowed    // admitted without the store, since a rule says Allow
	ModeRefused    = core.ModeRefused    // refused without the store, since a rule says Refuse
	ModeExempt     = core.ModeExempt     // admitted without asking any rule: see [Options].Exempt
	ModeBarred     = core.ModeBarred     // refused without asking any rule: see [Options].Bar
)

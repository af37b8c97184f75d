package core

// LeakyBucket is the leaky bucket as a meter: units come at Limit a Window, and up to
// Burst of them at once. That is what a [TokenBucket] with the same Burst admits, so it
// is one, of which none is ever missing at first.
//
// The method is the generic cell rate algorithm of ATM, ITU-T I.371 (1993), whose two
// forms, the leaky bucket and the virtual schedule, also decide alike.
const LeakyBucket Algorithm = 5

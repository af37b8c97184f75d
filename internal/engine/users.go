package engine

import "sync/atomic"

// Users counts the users of something that is used again once its owner has left it and it
// has no users. The zero Users has an owner, and no users. It is safe for concurrent use.
type Users struct{ n atomic.Int32 }

// left is added to the number of users when the owner leaves.
const left = 1 << 30

// Add adds a user, unless the owner has left.
func (u *Users) Add() bool {
	for {
		n := u.n.Load()
		if n >= left {
			return false
		}
		if u.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Done removes a user, and reports whether it was the last one, and the owner has left.
func (u *Users) Done() (last bool) { return u.n.Add(-1) == left }

// Alone is Leave if there are no users, and otherwise does nothing.
func (u *Users) Alone() bool { return u.n.CompareAndSwap(0, left) }

// Leave reports whether there are no users any more. No user comes afterwards.
func (u *Users) Leave() (last bool) { return u.n.Add(left) == left }

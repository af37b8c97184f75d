package core

// versions are the longest window and the largest limit of the quotas by which a key was
// charged since it was new. During a rollout, or after a change, several versions of a
// rule charge one key in turn. A state that lists times keeps those within the longest
// window, and of them the newest, as many as the largest limit. So each version counts
// what all of them took. The zero value is that of a new key.
//
// It is one number to keep a [Log] small.
type versions uint64

const limitBits = 17 // of MaxLog; a MaxWindow has 45

func (v versions) window() int64 { return int64(v >> limitBits) }
func (v versions) limit() int    { return int(v & (1<<limitBits - 1)) }

// and returns v with a quota.
func (v versions) and(limit, window int64) versions {
	return versions(max(v.window(), window)<<limitBits | max(int64(v.limit()), limit))
}

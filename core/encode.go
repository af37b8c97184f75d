package core

import (
	"encoding/binary"
	"time"
)

// quotaVersion begins what [Quota.Append] writes. A change of the encoding changes it.
const quotaVersion = 1

// Append appends an encoding of q to b, for names and hashes. Different quotas have different
// encodings, the same in all processes, and none is the beginning of another. A zone counts by its
// name and its offset at the epoch. Fields that are zero are left out: a new field does not change
// the encoding of quotas without it.
func (q Quota) Append(b []byte) []byte {
	b = append(b, quotaVersion, byte(q.Algorithm))
	b = binary.AppendVarint(b, q.Limit)
	b = binary.AppendVarint(b, q.Window)
	for i, n := range q.Numbers() {
		if n != 0 {
			b = binary.AppendVarint(append(b, byte(i+1)), n)
		}
	}
	b = append(b, 0)
	if q.Calendar.Unit == 0 || q.Calendar.Zone == nil {
		return b
	}
	name := q.Calendar.Zone.String()
	_, offset := time.Unix(0, 0).In(q.Calendar.Zone).Zone()
	b = binary.AppendVarint(append(b, byte(len(name)>>8), byte(len(name))), int64(offset))
	return append(b, name...)
}

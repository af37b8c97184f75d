package redisstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// sharerLife is how long a process counts after its last call of Sharers.
const sharerLife = 3 * time.Minute

var processID = strconv.FormatUint(rand.Uint64(), 36)

// countSharers keeps a list of the processes that call it, and returns how many there are.
// It uses only commands that decisions need, so that no user needs another right.
//
// KEYS[1]  the list: 10 digits of seconds and an id for each process, each in a line
// ARGV[1]  the id of the calling process
// ARGV[2]  how long a process counts after its last call, s
var countSharers = redis.NewScript(`
local now, kept, n = tonumber(redis.call('TIME')[1]), {}, 1
for at, id in string.gmatch(redis.call('GET', KEYS[1]) or '', '(%d+) (%w+)\n') do
  if id ~= ARGV[1] and math.abs(now - tonumber(at)) < tonumber(ARGV[2]) then
    n = n + 1
    kept[n] = at .. ' ' .. id .. '\n'
  end
end
kept[1] = string.format('%010d %s\n', now, ARGV[1])
redis.call('SET', KEYS[1], table.concat(kept), 'PX', 1000*ARGV[2])
return n`)

// Sharers returns how many processes share the keys of this store: those that called Sharers
// within the last three minutes, and this one. Package guard calls it once a minute. The
// list of them is one value of Redis, <prefix>:sharers, on one server of a Cluster. It has
// a random id for each process, and nothing of its machine or program.
func (s *Store) Sharers(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	prefix, _, _ := strings.Cut(s.prefix, "{")
	return countSharers.Run(ctx, s.client, []string{prefix + ":sharers"}, s.id, int(sharerLife.Seconds())).Int()
}

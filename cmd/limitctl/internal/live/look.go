package live

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/lua"
)

// A look has scripts that decide on a client read and not write. A decision of cost 0
// takes nothing, but it writes a state that follows from the limit of its rule, such as
// the end of a queue: and an operator may have written another limit than the programs
// have. It is a [redis.Hook].
type look struct{ scripts sync.Map } // what it runs, by the SHA of the script that writes

type script struct{ text, sha string }

// reads goes before a script. Of the commands of the scripts, these are the ones that
// write.
const reads = `local real, writes = redis, {SET = true, SETRANGE = true, PSETEX = true, PEXPIRE = true, DEL = true}
local redis = setmetatable({call = function(name, ...) if not writes[name] then return real.call(name, ...) end end}, {__index = real})
`

// of returns what a look runs for the script with that SHA, if it is one that decides.
func (l *look) of(sha string) (script, bool) {
	if s, known := l.scripts.Load(sha); known {
		return s.(script), true
	}
	text := lua.Plain(sha)
	if text == "" || sha == lua.ResetScript().SHA || sha == lua.LeaseScript().SHA || sha == lua.LostScript().SHA {
		return script{}, false // such as those of package control
	}
	text = reads + text
	s := script{text, sum(text)}
	l.scripts.Store(sha, s)
	return s, true
}

func sum(text string) string { return redis.NewScript(text).Hash() }

func (l *look) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		l.replace(cmd)
		return next(ctx, cmd)
	}
}

// replace has a command that runs a script run what a look does.
func (l *look) replace(cmd redis.Cmder) {
	args := cmd.Args()
	switch cmd.Name() {
	case "evalsha":
		if s, ok := l.of(args[1].(string)); ok {
			args[1] = s.sha
		}
	case "eval":
		if s, ok := l.of(sum(args[1].(string))); ok {
			args[1] = s.text
		}
	}
}

func (l *look) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *look) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			l.replace(cmd)
		}
		return next(ctx, cmds)
	}
}

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/redistest"
)

// TestSlowRedis checks that commands wait for a Redis whose replies take longer than those that
// programs wait for, and say so if it does not answer.
func TestSlowRedis(t *testing.T) {
	client := redistest.Real(t)
	proxy := faultproxy.Start(t, client.Options().Addr)
	url := []string{"--redis", "redis://" + proxy.Addr()}
	on := []string{"--rules", "9/1h per user", "--on", "login"}
	key := []string{"--policy", "login", "--rule", "per-user-1h", "--key", "alice"}
	command := func(words string, more ...[]string) []string {
		args := strings.Fields(words)
		for _, m := range more {
			args = append(args, m...)
		}
		return append(args, url...)
	}
	policy := "version: 1\npolicies:\n  login: {routes: [POST /login], rules: 9/1h per user}\n"
	exits(t, 0, command("ban user alice --for 1h --by ann --yes")...)
	exits(t, 0, command("override --limit 50 --for 1h --by ann --yes", key, on)...)
	exits(t, 0, command("push --yes --by ann "+file(t, policy))...)

	proxy.Break(faultproxy.On(faultproxy.Fault{Delay: 350 * time.Millisecond}, "get", "evalsha", "eval"))
	out, problem := exits(t, 0, command("ban --list")...)
	assert.Contains(t, out, "user alice", problem)
	out, problem = exits(t, 0, command("override --list")...)
	assert.Contains(t, out, "key alice: limit 50", problem)
	out, _ = exits(t, 0, command("explain --user alice "+file(t, policy)+" POST /login")...)
	assert.Contains(t, out, "50")
	_, problem = exits(t, 0, command("push --yes --by ann "+file(t, strings.Replace(policy, "login", "other", 1)))...)
	assert.Contains(t, problem, "LIMIT-207: lifts policy login")

	proxy.Break(faultproxy.On(faultproxy.Fault{Kind: faultproxy.LoseReply}, "hscan"))
	for _, args := range [][]string{command("ban --list"), command("override --list"), command("inspect", key, on), command("explain " + file(t, policy) + " POST /login")} {
		out, _ = exits(t, 1, args...)
		assert.Empty(t, out, args)
	}
	_, problem = exits(t, 0, command("push --yes --by ann "+file(t, policy))...)
	assert.Contains(t, problem, "not compared with the file pushed before")
}

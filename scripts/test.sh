#!/bin/sh
# Runs what a change must pass: gofmt, go vet, staticcheck, an installation of
# the tree as if it had been published, and the tests of every module with the
# race detector, against a real Redis if one can be had. The tests start their
# own servers, on free loopback ports. The live page runs in Chromium if there is one.
#
#	scripts/test.sh            all of it
#	scripts/test.sh miniredis  only the Redis suites on miniredis
set -eu
cd "$(dirname "$0")/.."

banner() {
	printf '\n############################################################\n'
	printf '## %s\n' "$@"
	printf '############################################################\n'
}

has() { command -v "$1" >/dev/null 2>&1; }

install_redis() {
	if has apt-get && [ "$(id -u)" = 0 ]; then
		set -- apt-get install -y -qq redis-server
	elif has apt-get && has sudo && sudo -n true 2>/dev/null; then
		set -- sudo -n apt-get install -y -qq redis-server
	elif has brew; then
		set -- brew install redis
	else
		return 1
	fi
	banner 'redis-server is not installed. This installs it, and LIMIT_HIDE_REDIS=1 prevents that:' "$*"
	case $* in
	"sudo "*) sudo -n apt-get update -qq ;;
	apt-get*) apt-get update -qq ;;
	esac
	"$@"
}

# start_miniredis serves a Redis in memory for the suites, and stops it when
# this script ends.
start_miniredis() {
	tmp=$(mktemp -d)
	miniredis=
	trap '[ -z "$miniredis" ] || { kill "$miniredis"; wait "$miniredis" || true; }; rm -rf "$tmp"' EXIT
	trap 'exit 130' INT TERM
	(cd proof && go build -o "$tmp/miniredis" ./cmd/miniredis)
	"$tmp/miniredis" >"$tmp/addr" &
	miniredis=$!
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		[ -s "$tmp/addr" ] && break
		sleep 0.2
	done
	LIMIT_TEST_REDIS=$(cat "$tmp/addr")
	[ -n "$LIMIT_TEST_REDIS" ] || {
		echo 'miniredis did not start' >&2
		exit 1
	}
	export LIMIT_TEST_REDIS
	export LIMIT_SCHEDULES="${LIMIT_SCHEDULES:-200}" # of each suite: miniredis is slow
}

# On miniredis packages share one server, and empty it.
miniredis_flags='-p=1 -timeout=20m'

# run_on_miniredis runs the Redis suites without redis-server, with few schedules, and without
# the longest comparisons with models, which say nothing about miniredis. Of the other packages it
# runs the files with tests that need no server of their own.
run_on_miniredis() (
	start_miniredis
	export LIMIT_HIDE_REDIS=1 LIMIT_REQUIRE_REDIS=
	some=$(grep -l 'redistest\.Client(' ./*_test.go stores/guard/*_test.go stores/prefetch/*_test.go |
		xargs sed -n 's/^func \(Test[A-Za-z]*\)(.*/^\1$/p' | paste -sd '|' -)
	# shellcheck disable=SC2086 # these are flags
	go test -vet=off -count=1 -short $miniredis_flags -run "$some" . ./stores/guard ./stores/prefetch
	# shellcheck disable=SC2086
	LIMIT_SCHEDULES=20 go test -vet=off -count=1 -short $miniredis_flags -skip 'Forms|AgreesWithZSET|Periods|Levels|Tallies|Lengths|Flattened|Guarded|TestSpread$' ./stores/redisstore
)

if [ "${1:-}" = miniredis ]; then
	run_on_miniredis
	exit
fi

# shortened prints the tests that skip or shorten something under the race detector, as -run
# wants them.
shortened() {
	# shellcheck disable=SC2016 # this is awk
	grep -rlE 'race\.(Skip|Enabled)' --include='*_test.go' . | xargs awk '
		/^func / { test = $0 ~ /^func Test/ ? $2 : ""; sub(/\(.*/, "", test) }
		/race\.(Skip|Enabled)/ && test { printf "%s^%s$", before, test; before = "|"; test = "" }'
}

has_redis() { [ -z "${LIMIT_HIDE_REDIS:-}" ] && has redis-server; }

# beside runs a command beside what follows, unless packages share one server. The end
# of this script waits for all of them.
others=
beside() {
	last=
	if has_redis; then
		"$@" &
		last=$!
		others="$others $last"
		trap wait EXIT
		trap 'kill $others 2>/dev/null || :; exit 130' INT TERM
	else
		"$@"
	fi
}

redis="a real redis-server"
packages=-timeout=20m
if ! has_redis && [ -z "${LIMIT_HIDE_REDIS:-}" ]; then
	install_redis || echo 'redis-server could not be installed'
fi
if ! has_redis; then
	if [ -n "${LIMIT_REQUIRE_REDIS:-}" ]; then
		banner 'LIMIT_REQUIRE_REDIS is set, and there is no redis-server'
		exit 1
	elif [ -n "${LIMIT_TEST_REDIS:-}" ]; then
		redis="the server at LIMIT_TEST_REDIS=$LIMIT_TEST_REDIS"
	else
		start_miniredis
		redis="miniredis, which is NOT a real Redis: install redis-server for that"
	fi
	packages=$miniredis_flags
	banner "There is no redis-server." "The Redis suites run on $redis"
fi

race=-race
if [ "$(go env CGO_ENABLED)" != 1 ]; then
	race=
	banner 'There is no C compiler: the tests run WITHOUT the race detector'
fi

browser='no browser: the tests of the live page in a browser were skipped'
# The names that proof/browser looks for.
for name in "${LIMIT_BROWSER:-}" chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable chrome; do
	! has "$name" || browser='a real Chromium'
done

# shellcheck disable=SC2086 # this is a flag, or none
scripts/lint.sh $race
# The proofs mostly wait, for longer than anything else. lint.sh has run vet.
# shellcheck disable=SC2086 # these are flags, or none
beside go test -vet=off $race $packages ./proof/...
if [ -e .git ]; then
	scripts/clean_test.sh
	# shellcheck disable=SC2086
	scripts/install_test.sh $race
else
	banner 'This is not a git checkout: no release of it was made and installed'
fi
# The tests wait for much of their time. What only compiles gets what they leave of the processors.
beside nice scripts/systems.sh
# What goes another way without the race detector, counts memory, or is a long run of one
# goroutine (see internal/race) runs with the oldest Go, so that each Go compiles the library
# and its dependencies once.
slow="./stores/redisstore . $(go list ./stores/... | grep -Ev '/(memstore|redisstore)$') ./benchmarks/... ./cmd/limitctl/replay/... ./ops/feed ./ops/livepage ./ops/policyfile ./ops/topkeys"
oldest=$(scripts/oldest.sh)
if ! GOTOOLCHAIN=$oldest go version; then
	[ -z "${LIMIT_REQUIRE_TOOLS:-}" ] || {
		echo "LIMIT_REQUIRE_TOOLS is set, and $oldest could not be fetched" >&2
		exit 1
	}
	banner "$oldest could not be fetched: nothing is tested with it"
	oldest=$(go env GOVERSION)
fi
# shellcheck disable=SC2086 # these are several
compile() { GOTOOLCHAIN=$oldest nice go list -export -deps -test $slow ./proof >/dev/null; }
beside compile
compiled=$last others=${others% "$last"} # it is waited for earlier
# All at once, the longest first, and more than one for each processor.
patterns="$PWD/stores/redisstore $(go list -m -f '{{.Dir}}/...' | grep -v '/proof/\.\.\.$')"
# shellcheck disable=SC2086 # these are flags, or none, and patterns
go test -vet=off -p=4 $race $packages $patterns
(cd tools && GOWORK=off go test -vet=off $race -timeout=20m ./...) # outside of go.work: the files of ops/deploy, with the parser of Prometheus
[ -z "$compiled" ] || wait "$compiled"
export GOTOOLCHAIN="$oldest"
# shellcheck disable=SC2086
beside go test -vet=off $packages ./core ./stores/memstore
! has_redis || beside run_on_miniredis
# shellcheck disable=SC2086
go test -vet=off -p=4 $packages -run "Schedules|Batches|Twins|Memory|Allocations|$(shortened)" $slow
# shellcheck disable=SC2086
go test -vet=off $packages -run Linearizable ./proof
for other in $others; do
	wait "$other"
done

banner 'Everything passed.' "The Redis suites ran on $redis" "The live page ran in $browser"

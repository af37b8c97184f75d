#!/bin/sh
# Type-checks everything for Windows, macOS, 32 bits and the oldest Go, and tests core and the
# store in memory on 32 bits.
#
#	scripts/systems.sh [package...]  tests these packages on 32 bits
set -eu
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
patterns=$(go list -m -f '{{.Dir}}/...')

# missing fails if LIMIT_REQUIRE_TOOLS is set, and otherwise says what was not done.
missing() {
	printf '\n!! %s\n' "$*" >&2
	[ -z "${LIMIT_REQUIRE_TOOLS:-}" ]
}

# check type-checks packages and their tests for a system, with the Go of GOTOOLCHAIN.
check() {
	[ -x "$tmp/typecheck" ] || return 0
	# shellcheck disable=SC2086 # these are several
	GOOS=$1 GOARCH=$2 CGO_ENABLED=0 "$tmp/typecheck" $patterns
}

(cd tools && GOWORK=off go build -o "$tmp/typecheck" ./typecheck) ||
	missing 'tools/typecheck could not be built: nothing was checked for other systems'
check windows amd64
check darwin arm64
check linux 386

oldest=$(scripts/oldest.sh)
if GOTOOLCHAIN=$oldest go version; then
	(export GOTOOLCHAIN="$oldest" && check linux amd64)
else
	missing "$oldest could not be fetched: nothing was checked with it"
fi

# Some kernels for amd64 run no programs of 32 bits.
printf 'package main\n\nfunc main() {}\n' >"$tmp/nothing.go"
GOOS=linux GOARCH=386 CGO_ENABLED=0 go build -o "$tmp/nothing" "$tmp/nothing.go"
if "$tmp/nothing" 2>/dev/null; then
	[ $# -gt 0 ] || set -- ./core ./stores/memstore ./stores/guard
	export LIMIT_SCHEDULES="${LIMIT_SCHEDULES:-200}"
	GOOS=linux GOARCH=386 CGO_ENABLED=0 go test -vet=off -short -timeout=20m "$@"
else
	printf '\n!! programs of 32 bits do not run here: they were not tested\n' >&2
fi

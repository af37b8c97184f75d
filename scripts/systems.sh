#!/bin/sh
# Type-checks everything for Windows, macOS, 32 bits and the oldest Go that go.work names,
# and tests the root, core and the stores with that Go on 32 bits.
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

oldest=go$(awk '$1 == "go" { print $2 }' go.work)
# The last release of the oldest Go: its first ones have known defects.
oldest=${oldest%.*}.${LIMIT_OLDEST_PATCH:-5}
if GOTOOLCHAIN=$oldest go version; then
	export GOTOOLCHAIN="$oldest"
	check linux amd64
else
	missing "$oldest could not be fetched: nothing was tested with it"
fi

# Programs of 32 bits and the oldest Go are tested together, since each compiles all
# dependencies once more. The workflow for public CI tests the oldest Go on 64 bits.
case $(go env GOOS GOARCH | tr -d '\n') in
linuxamd64) export GOARCH=386 CGO_ENABLED=0 ;;
*) printf '\n!! programs of 32 bits do not run here: they were not tested\n' >&2 ;;
esac
go test -vet=off -short -timeout=20m . ./core ./stores/memstore
go test -vet=off -short -timeout=20m -run 'Store|Batches|Agrees|Returns|Hidden|Clock' ./stores/redisstore

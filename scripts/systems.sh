#!/bin/sh
# Type-checks everything for Windows, macOS and 32 bits, runs core and the stores on
# 32 bits, and builds and tests with the oldest Go that go.work names.
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
case $(go env GOOS GOARCH | tr -d '\n') in
linuxamd64)
	GOARCH=386 CGO_ENABLED=0 go test -vet=off -short -timeout=20m ./core ./stores/memstore
	GOARCH=386 CGO_ENABLED=0 go test -vet=off -short -timeout=20m -run 'Store|Batches|Agrees|Returns|Hidden|Clock' ./stores/redisstore
	;;
*) printf '\n!! programs of 32 bits do not run here: core and the stores were not tested on 32 bits\n' >&2 ;;
esac

oldest=go$(awk '$1 == "go" { print $2 }' go.work)
# The last release of the oldest Go: its first ones have known defects.
oldest=${oldest%.*}.${LIMIT_OLDEST_PATCH:-5}
if GOTOOLCHAIN=$oldest go version; then
	(export GOTOOLCHAIN="$oldest" && check linux amd64)
	GOTOOLCHAIN=$oldest go test -vet=off -short -timeout=20m . ./core ./stores/memstore
else
	missing "$oldest could not be fetched: nothing was tested with it"
fi

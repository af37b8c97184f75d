#!/bin/sh
# Type-checks everything for Windows, macOS and 32 bits, runs core and the stores on
# 32 bits, and builds and tests with the oldest Go that go.work names.
set -eu
cd "$(dirname "$0")/.."

patterns=$(go list -m -f '{{.Dir}}/...')

# check type-checks packages and their tests for a system. One analyzer is enough for that.
check() {
	# shellcheck disable=SC2086 # these are several
	GOOS=$1 GOARCH=$2 CGO_ENABLED=0 go vet -buildtag $patterns
}

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
elif [ -n "${LIMIT_REQUIRE_TOOLS:-}" ]; then
	printf 'LIMIT_REQUIRE_TOOLS is set, and %s could not be fetched\n' "$oldest" >&2
	exit 1
else
	printf '\n!! %s could not be fetched: nothing was tested with it\n' "$oldest" >&2
fi

#!/bin/sh
# Checks the formatting, and runs go vet and staticcheck in every module.
#
#	scripts/lint.sh [-race]  compiles for the race detector, so that its tests need not
set -eu
cd "$(dirname "$0")/.."

unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
	printf 'not formatted, run gofmt -w:\n%s\n' "$unformatted" >&2
	exit 1
fi

patterns=$(go list -m -f '{{.Dir}}/...') # at once, since modules share packages
# shellcheck disable=SC2086 # these are several
go vet "$@" $patterns

# The tools are a module of their own, outside go.work: no user of the
# library gets their dependencies.
(cd tools && GOWORK=off go vet "$@" ./...)
if staticcheck=$(cd tools && GOWORK=off go tool -n staticcheck) && [ -x "$staticcheck" ]; then
	# GOGC spares a fifth of the processor time.
	# shellcheck disable=SC2086
	(
		GOFLAGS="$(go env GOFLAGS) $*" GOGC=400
		export GOFLAGS GOGC
		"$staticcheck" $patterns
		cd tools
		GOWORK=off "$staticcheck" ./...
	)
elif [ -n "${LIMIT_REQUIRE_TOOLS:-}" ]; then
	echo 'LIMIT_REQUIRE_TOOLS is set, and staticcheck could not be fetched or built' >&2
	exit 1
else
	printf '\n!! staticcheck could not be fetched or built: it did not run\n' >&2
fi

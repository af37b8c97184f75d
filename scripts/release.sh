#!/bin/sh
# Releases every published module of go.work under one version:
#
#	scripts/release.sh v0.1.0         commits the requirements of the modules on each other,
#	                                  tags every module, and prints what to push
#	scripts/release.sh -n DIR v0.1.0  does the same in DIR, a new repository with a copy of the tree
#
# The root module's tag is v0.1.0, that of the module in ops/ is
# ops/v0.1.0.
set -eu
cd "$(dirname "$0")/.."

# These modules test, measure or demonstrate this tree.
unpublished='benchmarks examples proof'

fail() {
	printf 'release.sh: %s\n' "$1" >&2
	exit 1
}

copy=
if [ "${1:-}" = -n ] && [ $# -ge 2 ]; then
	copy=$2
	shift 2
fi
version=${1:-}
printf '%s\n' "$version" | grep -Eq '^v[01]\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$' ||
	fail 'usage: scripts/release.sh [-n DIR] v0.1.0 (v2 and later need another module path)'

# modules prints the path and the folder of every module, without the root's
# folder: "example.com/m/sub sub".
modules() {
	go list -m -f '{{.Path}} {{.Dir}}' | while read -r path dir; do
		dir=${dir#"$PWD"}
		printf '%s %s\n' "$path" "${dir#/}"
	done
}

# required prints the version at which the module in a folder requires another.
required() {
	awk -v path="$2" '$1 == path { print $2 } $1 == "require" && $2 == path { print $3 }' "${1:-.}/go.mod"
}

# release does the work, in the current folder.
release() {
	all=$(modules)
	# go install PACKAGE@VERSION refuses a module that replaces another.
	replacing=$(printf '%s\n' "$all" | while read -r _ dir; do
		grep -l '^replace' "${dir:-.}/go.mod" || true
	done)
	[ -z "$replacing" ] || fail "remove the replace directives of $replacing: go.work has them"
	published=$(printf '%s\n' "$all" | while read -r path dir; do
		case " $unpublished " in *" $dir "*) ;; *) printf '%s %s\n' "$path" "$dir" ;; esac
	done)

	printf '%s\n' "$all" | while read -r _ dir; do
		printf '%s\n' "$published" | while read -r other otherdir; do
			old=$(required "$dir" "$other")
			[ -n "$old" ] || continue
			go mod edit "-require=$other@$version" "${dir:-.}/go.mod"
			# A workspace still reads the go.mod file of a version that is required.
			go work edit "-dropreplace=$other@$old"
			go work edit "-replace=$other@$version=./$otherdir"
		done
	done
	go work edit -fmt
	[ -z "$(git status --porcelain)" ] || git commit -q -a -m "release $version"
	printf '%s\n' "$published" | while read -r path dir; do
		git tag "${dir:+$dir/}$version"
		printf '%-50s tag %s\n' "$path" "${dir:+$dir/}$version"
	done
}

if [ -n "$copy" ]; then
	scripts/copy.sh "$copy"
	cd "$copy"
	release
	exit
fi

[ -z "$(git tag --list "$version" "*/$version")" ] || fail "$version has tags already"
[ -z "$(git status --porcelain)" ] || fail 'commit or remove what is not committed'
grep -q "^## \[${version#v}\]" CHANGELOG.md || fail "CHANGELOG.md has no section [${version#v}]"
release
printf '\nTo publish:\n\tgit push origin HEAD'
git tag --points-at HEAD | while read -r tag; do printf ' %s' "$tag"; done
printf '\n'

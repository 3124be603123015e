#!/usr/bin/env bash
# check_package.sh BUILD: installs BUILD into an empty prefix, makes the .deb and the tarball, and
# runs the program from each, away from the source tree and with an empty home.
set -euxo pipefail
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/home"

answers() {
  local prefix=$1
  (cd "$work/home" && env -i HOME="$work/home" PATH=/usr/bin:/bin \
    "$prefix/bin/nibble" run shakespeare -p "ROMEO:" -n 40 --temp 0 --json |
    python3 -c 'import json, sys; assert json.load(sys.stdin)["generated_tokens"] == 40')
}

cmake --install "$build" --prefix "$work/installed" --component nibble
answers "$work/installed"

rm -rf "$build/packages"
(cd "$build" && cpack -G "DEB;TGZ" -B "$build/packages")
ls -l "$build"/packages/*.deb "$build"/packages/*.tar.gz

mkdir "$work/tarball" "$work/deb"
tar -C "$work/tarball" --strip-components=1 -xzf "$build"/packages/*.tar.gz
answers "$work/tarball"

dpkg-deb --info "$build"/packages/*.deb
dpkg-deb --info "$build"/packages/*.deb | grep -E '^ Depends:.*libc6'
dpkg-deb -x "$build"/packages/*.deb "$work/deb"
answers "$work/deb/usr"

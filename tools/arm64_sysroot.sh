#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the sysroot that cmake/arm64.cmake builds with: the libraries of octet's running side for arm64, from this distribution's own
# packages, unpacked into a folder. Needs no root and changes nothing of the system. Compiler and emulator are ordinary packages:
# apt-get install g++-aarch64-linux-gnu qemu-user-static
set -euo pipefail
cd "$(dirname "$0")/.."

readonly PACKAGES=(libc6-dev libstdc++6 libyaml-cpp-dev libgtest-dev libcli11-dev libfmt-dev nlohmann-json3-dev libjpeg-dev libpng-dev
                   libwebp-dev zlib1g-dev libpugixml-dev)

usage() {
  cat <<'END_OF_USAGE'
usage: tools/arm64_sysroot.sh [--python] [FOLDER]
  FOLDER     where the sysroot goes (default: .deps/arm64, where cmake/arm64.cmake looks); made anew if it exists
  --python   python3 and numpy for arm64 too, which testing the Python module under qemu needs
END_OF_USAGE
}

packages=("${PACKAGES[@]}") folder=.deps/arm64
for argument in "$@"; do
  case "$argument" in
    --python) packages+=(python3-minimal python3-numpy) ;;
    --help | -h) usage; exit 0 ;;
    -*) echo "arm64_sysroot: unknown argument '$argument'" >&2; usage >&2; exit 2 ;;
    *) folder=$argument ;;
  esac
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,archives/partial,sources,root}
touch "$work/status"
# shellcheck source=/dev/null
. /etc/os-release
case "$ID" in
  debian) suites="$VERSION_CODENAME $VERSION_CODENAME-updates" uri=http://deb.debian.org/debian components=main ;;
  ubuntu) suites="$VERSION_CODENAME $VERSION_CODENAME-updates" uri=http://ports.ubuntu.com/ubuntu-ports components="main universe" ;;
  *) echo "arm64_sysroot: packages of Debian and Ubuntu are known, not of '$ID'" >&2; exit 3 ;;
esac
printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: %s\nArchitectures: arm64\nSigned-By: %s\n' "$uri" "$suites" "$components" \
  "/usr/share/keyrings/$ID-archive-keyring.gpg" >"$work/sources/arm64.sources"

# apt with a state of its own, for an arm64 machine on which nothing is installed: it resolves what each package needs.
private_apt() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$work" -o Dir::State::lists="$work/lists" \
    -o Dir::State::status="$work/status" -o Dir::Cache="$work" -o Dir::Cache::archives="$work/archives" -o Dir::Etc::sourcelist=/dev/null \
    -o Dir::Etc::sourceparts="$work/sources" -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 "$@"
}
echo "arm64_sysroot: fetching packages of $ID $VERSION_CODENAME for arm64 ..." >&2
private_apt update
private_apt install --download-only --no-install-recommends -y "${packages[@]}" >"$work/apt.log" || { cat "$work/apt.log" >&2; exit 3; }
for package in "$work"/archives/*.deb; do
  dpkg-deb -x "$package" "$work/root"
  dpkg-deb --ctrl-tarfile "$package" | tar -xO ./shlibs 2>/dev/null >>"$work/root/shlibs" || true
done

# Absolute links would lead out of the sysroot.
find "$work/root" -type l -lname '/*' | while read -r link; do ln -sfnr "$work/root$(readlink "$link")" "$link"; done
mkdir -p "$(dirname "$folder")"
rm -rf "$folder"
mv "$work/root" "$folder"
echo "arm64_sysroot: $(find "$work/archives" -name '*.deb' | wc -l) packages in $folder, $(du -sh "$folder" | cut -f1)" >&2

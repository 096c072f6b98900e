#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# README's two commands on a machine that has nothing: in a minimal root of Debian, with a clone of this checkout.
# See `tools/fresh_root.sh --help`.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'END'
usage: tools/fresh_root.sh bookworm|trixie [--keep] [DIR]
Makes a minimal root of Debian 12 (bookworm) or 13 (trixie) in DIR (default: a temporary folder), clones this checkout's HEAD into it
and runs there, as root and with nothing installed before, the two commands of README.md as they stand there. Prints the time and the
exit code of each; exits 1 if one failed. --keep leaves the root in DIR, else it is removed.
Needs root, debootstrap, git and 15 GB of disk. This machine's settings of apt and pip and its certificates are taken over, its packages
are not. There is no GPU in the root: the build is CPU-only. Ubuntu 24.04 is not offered: Debian's debootstrap has neither its
script nor its key.
environment:
  MIRROR   where debootstrap takes packages from (default: http://deb.debian.org/debian)
END
}

fail() { echo "fresh_root: $*" >&2; exit 2; }
keep=no suite='' root=''
for argument in "$@"; do
  case "$argument" in
    --help | -h) usage; exit 0 ;;
    --keep) keep=yes ;;
    -*) usage >&2; fail "unknown argument '$argument'" ;;
    *) if [ -z "$suite" ]; then suite=$argument; elif [ -z "$root" ]; then root=$argument; else fail "too many arguments: '$argument'"; fi ;;
  esac
done
case "$suite" in
  bookworm | trixie) ;;
  *) usage >&2; fail "which Debian? bookworm or trixie" ;;
esac
[ "$(id -u)" = 0 ] || fail "debootstrap and chroot need root"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
# The first block of code under "Two commands", without its comments: one command a line.
mapfile -t commands < <(sed -n '/^## Two commands/,/^## [^T]/p' README.md | sed -n '/^```/,/^```/p' | sed -n '2,/^```/p' |
                        sed -E '/^```/d; s/ *#.*//')
[ ${#commands[@]} = 2 ] || fail "README.md has ${#commands[@]} commands under 'Two commands', not 2"

if [ -z "$root" ]; then root=$(mktemp -d); else mkdir -p "$root"; fi
root=$(realpath "$root")
[ -z "$(ls -A "$root")" ] || fail "$root is not empty"
chmod 755 "$root"  # mktemp makes it for its owner alone, and tests run as others inside
leave() {
  local folder
  for folder in proc sys dev/pts dev/shm; do
    if mountpoint -q "$root/$folder"; then umount "$root/$folder"; fi
  done
  rm -f "$log"
  if [ "$keep" = yes ]; then echo "fresh_root: the root is $root"; else rm -rf --one-file-system "$root"; fi
}
log=$(mktemp)
trap leave EXIT

echo "== a minimal root of $suite"
debootstrap --variant=minbase "$suite" "$root" "${MIRROR:-http://deb.debian.org/debian}" >"$log" 2>&1 || { tail -n 20 "$log" >&2; fail "debootstrap failed"; }
# How this machine reaches its registries.
take() { if [ -e "$1" ]; then mkdir -p "$root$(dirname "$1")" && cp -L "$1" "$root$1"; fi; }
take /etc/resolv.conf
take /etc/pip.conf
take /etc/ssl/certs/ca-certificates.crt
for file in /usr/local/share/ca-certificates/*.crt; do take "$file"; done  # the package ca-certificates writes the file above anew
for file in /etc/apt/apt.conf.d/*; do
  if grep -qiE '^ *Acquire::(http|https|Check)' "$file"; then take "$file"; fi
done
variables=()
for name in http_proxy https_proxy no_proxy PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_CERT PIP_DEFAULT_TIMEOUT \
            SSL_CERT_FILE REQUESTS_CA_BUNDLE; do
  if [ -n "${!name:-}" ]; then variables+=("$name=${!name}"); fi
done
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t devpts devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
git clone -q --no-hardlinks . "$root/root/octet"
echo "$(grep -c '^Package:' "$root/var/lib/dpkg/status") packages, and a clone of $(git rev-parse --short HEAD)"

verdict=0
for command in "${commands[@]}"; do
  echo "== $command"
  start=$SECONDS code=0
  chroot "$root" env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${variables[@]}" \
    bash -c "cd /root/octet && $command" </dev/null || code=$?
  echo "fresh_root: $suite: $command: exit code $code after $((SECONDS - start)) s"
  [ "$code" = 0 ] || verdict=1
done
exit $verdict

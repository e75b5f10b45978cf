#!/usr/bin/env bash
# Checks that the packages of apt_packages.txt are there; installs the missing ones as root and
# names the command otherwise.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v dpkg-query >/dev/null; then
  echo "not a Debian: see that these are installed:" $(grep -v '^#' apt_packages.txt) >&2
  exit 0
fi
missing=()
for package in $(grep -v '^#' apt_packages.txt); do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
    missing+=("$package")
done
[ ${#missing[@]} = 0 ] && exit 0
if [ "$(id -u)" != 0 ]; then
  echo "missing packages: sudo apt-get install ${missing[*]}" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
install=(apt-get install -y -q --no-install-recommends "${missing[@]}")
# A fresh image has no package lists, or old ones.
"${install[@]}" </dev/null || { apt-get update -q && "${install[@]}" </dev/null; }

#!/usr/bin/env bash
# Puts the source archives of libjpeg-turbo, libpng and zlib into build/carry, and the assembler nasm, for run.sh on a machine
# without network and without these libraries' headers. Run this beforehand, on a machine with a network:
#   tests/gpu/carry.sh            the versions that ffi/codecs.cmake names, from the addresses it names, SHA256 checked
#   tests/gpu/carry.sh --debian   Debian's sources of the three packages and its nasm, by apt-get, which checks them
#   tests/gpu/carry.sh FOLDER     archives that lie in a folder, of any version, and the program nasm or Debian's package of it
# build/ is ignored by git: where only tracked files travel, name build/carry as well (about 7 MB).
# Without nasm libjpeg-turbo is slow, and other than everywhere else in what it makes of coefficients far out of range, so
# that some tests fail. Where none is found otherwise, this machine's own is taken along.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
carry=$PWD/build/carry
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Address and SHA256 of each archive, as ffi/codecs.cmake has them: the line with the address, then that with the sum.
named() {
  awk '$1 ~ /^https:/ {address = $1; next} address != "" && length($1) == 64 {print address, $1; address = ""}' ffi/codecs.cmake
}

from=${1:-}
case $from in
  "")
    named | while read -r address sum; do
      curl --fail --location --silent --show-error --output "$work/${address##*/}" "$address"
      echo "$sum  $work/${address##*/}" | sha256sum --check --quiet
    done
    from=$work
    ;;
  --debian)
    # Its own lists: the machine's need not name sources, and stay as they are.
    mkdir -p "$work/lists/partial" "$work/parts"
    touch "$work/sources.list"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian*; do
      if [ -e "$file" ]; then sed 's/^Types: deb$/Types: deb deb-src/; s/^deb \(.*\)/&\ndeb-src \1/' "$file" >"$work/parts/${file##*/}"; fi
    done
    apt=(apt-get -q -o "Dir::Etc::sourcelist=$work/sources.list" -o "Dir::Etc::sourceparts=$work/parts" -o "Dir::State::lists=$work/lists")
    "${apt[@]}" update
    (cd "$work" && "${apt[@]}" source --download-only --tar-only libjpeg-turbo libpng1.6 zlib && "${apt[@]}" download nasm)
    from=$work
    ;;
esac

mkdir -p "$carry"
for name in libjpeg-turbo libpng zlib; do
  archive=$(find "$from" -maxdepth 1 -name "$name*.tar.*" ! -name '*.debian.tar.*' ! -name '*.asc' | sort | tail -n 1)
  [ -n "$archive" ] || { echo "no archive $name*.tar.* in $from" >&2; exit 1; }
  rm -f "$carry/$name"*
  cp "$archive" "$carry/"
done

# Debian leaves zlib's files for Windows out, of which its CMakeLists.txt names one on Linux, too.
zlib=$(echo "$carry"/zlib*)
if ! tar --list --file "$zlib" | grep -q 'win32/zlib1\.rc$'; then
  mkdir "$work/zlib"
  tar --extract --strip-components=1 --directory "$work/zlib" --file "$zlib"
  mkdir "$work/zlib/win32"
  touch "$work/zlib/win32/zlib1.rc"
  rm "$zlib"
  tar --create --gzip --directory "$work" --file "${zlib%.tar.*}.tar.gz" zlib
fi

rm -f "$carry/nasm"
package=$(find "$from" -maxdepth 1 -name 'nasm_*.deb' | sort | tail -n 1)
if [ -n "$package" ]; then
  dpkg-deb --extract "$package" "$work/nasm"
  cp "$work/nasm/usr/bin/nasm" "$carry/"
elif [ -x "$from/nasm" ]; then
  cp "$from/nasm" "$carry/"
elif command -v nasm >/dev/null; then
  cp "$(command -v nasm)" "$carry/"
else
  echo "without nasm: none in $from, none installed" >&2
fi
(cd "$carry" && sha256sum ./*)

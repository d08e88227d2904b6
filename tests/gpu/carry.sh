#!/usr/bin/env bash
# Puts what run.sh needs on a machine without network, with Python 3.12, jax and jax's CUDA plugin, into build/carry:
#   modules.tar.xz  the package's modules, compiled here for sm_90 (JAXDALI_CUDA_REAL names other GPUs), with the codecs in them: minutes of nvcc
#   wheels/         the packages that tests need and that machine.txt does not list
#   archives of libjpeg-turbo, libpng and zlib, and the assembler nasm, to compile there all the same, for another Python or glibc
#   commit          the hash of the commit, with "+" if the tracked files differ from it
# Run this beforehand, on a machine with a network, nvcc 13 and Python 3.12:
#   tests/gpu/carry.sh              the archives that ffi/codecs.cmake names, from the addresses it names, SHA256 checked
#   tests/gpu/carry.sh --debian     Debian's sources of the three packages and its nasm, by apt-get, which checks them
#   tests/gpu/carry.sh FOLDER       archives that lie in a folder, of any version, and the program nasm or Debian's package of it
#   tests/gpu/carry.sh --emulated   for a rehearsal: as --debian, with the emulated kernels in place of CUDA's
#   tests/gpu/carry.sh --list       only prints the names of all that travels, each with a NUL after it
# It prints the size of all that travels, the tracked files and build/carry, and fails above 64 MiB. build/ is ignored by git: where only tracked
# files travel, name build/carry as well. machine.txt lists the packages of the other machine, with the version of jax: a module needs the jaxlib
# that it is compiled with, or a newer one.
# Without nasm libjpeg-turbo is slow, and makes other values of coefficients far out of range, so that six tests fail. Where no nasm is found,
# Debian's is downloaded; this ends with an error unless libjpeg-turbo was built with SIMD.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
carry=$PWD/build/carry
needed=(pytest pytest-xdist hypothesis Pillow diastatic-malt nanobind)
machine=$PWD/tests/gpu/machine.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Address and SHA256 of each archive, as ffi/codecs.cmake has them: the line with the address, then that with the sum.
named() {
  awk '$1 ~ /^https:/ {address = $1; next} address != "" && length($1) == 64 {print address, $1; address = ""}' ffi/codecs.cmake
}

# The files of the repository, or of a copy without git, and what was collected.
list() {
  git ls-files -z --cached --others --exclude-standard 2>/dev/null ||
    find . \( -path ./build -o -path ./.venv -o -name '*.so' \) -prune -o -type f -print0
  find build/carry -type f -print0
}

from=${1:-}
kernels=(-DJAXDALI_CUDA=ON -DJAXDALI_CUDA_LINES=ON "-DJAXDALI_CUDA_REAL=${JAXDALI_CUDA_REAL:-90}")
case $from in
  --list) list && exit ;;
  "")
    named | while read -r address sum; do
      curl --fail --location --silent --show-error --output "$work/${address##*/}" "$address"
      echo "$sum  $work/${address##*/}" | sha256sum --check --quiet
    done
    from=$work
    ;;
  --debian | --emulated)
    if [ "$from" = --emulated ]; then kernels=(-DJAXDALI_CUDA=OFF -DJAXDALI_EMULATED=ON); fi
    # Its own lists: the machine's need not name sources, and stay as they are.
    mkdir -p "$work/lists/partial" "$work/parts"
    touch "$work/sources.list"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian*; do
      if [ -e "$file" ]; then sed 's/^Types: deb$/Types: deb deb-src/; s/^deb \(.*\)/&\ndeb-src \1/' "$file" >"$work/parts/${file##*/}"; fi
    done
    apt=(apt-get -q -o "Dir::Etc::sourcelist=$work/sources.list" -o "Dir::Etc::sourceparts=$work/parts" -o "Dir::State::lists=$work/lists")
    "${apt[@]}" update
    # Those of the release: its security updates add patches to the same archives, and mirrors may lack them.
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    (cd "$work" && "${apt[@]}" source --download-only --tar-only {libjpeg-turbo,libpng1.6,zlib}/"$release")
    from=$work
    ;;
esac

options=()  # of the build
put_archives() {
  local kind name archive
  for name in libjpeg-turbo libpng zlib; do
    archive=$(find "$from" -maxdepth 1 -name "$name*.tar.*" ! -name '*.debian.tar.*' ! -name '*.asc' | sort | tail -n 1)
    [ -n "$archive" ] || { echo "no archive $name*.tar.* in $from" >&2; exit 1; }
    cp "$archive" "$carry/"
  done

  for kind in JPEG:libjpeg-turbo PNG:libpng ZLIB:zlib; do options+=("-DJAXDALI_${kind%:*}_TARBALL=$(echo "$carry/${kind#*:}"*)"); done
}

# The assembler: of the folder, this machine's, or Debian's.
put_nasm() {
  local package
  if [ -x "$from/nasm" ]; then
    cp "$from/nasm" "$carry/"
    return
  fi
  package=$(find "$from" -maxdepth 1 -name 'nasm_*.deb' | sort | tail -n 1)
  if [ -z "$package" ] && command -v nasm >/dev/null; then
    cp "$(command -v nasm)" "$carry/"
    return
  fi
  if [ -z "$package" ]; then
    (cd "$work" && apt-get -q update && apt-get -q download nasm) >&2
    package=$(find "$work" -maxdepth 1 -name 'nasm_*.deb')
  fi
  dpkg-deb --extract "$package" "$work/nasm"
  cp "$work/nasm/usr/bin/nasm" "$carry/"
}

mkdir -p "$carry"
rm -rf "$carry/wheels" "$carry"/*.tar.* "$carry/nasm"
put_archives
put_nasm
commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
if ! git diff --quiet HEAD 2>/dev/null; then commit+=+; fi
echo "$commit" >"$carry/commit"

# A machine as the other one is: what it has need not travel.
python=$(.ci/find_python 3.12)
[ -n "$python" ] || { echo "no Python 3.12 on PATH or from pyenv" >&2; exit 1; }
build=$PWD/build/carried  # stays, so that what has not changed is not compiled again
"$python" -m venv "$build/there"
there=$build/there/bin
"$there/pip" install --quiet --upgrade "pip>=25.1"
"$there/pip" install --quiet --requirement "$machine"
"$there/pip" install --quiet --dry-run --report "$work/missing.json" --only-binary=:all: "${needed[@]}"
"$there/python" -c '
import json, sys
for package in json.load(open(sys.argv[1]))["install"]:
    print(package["metadata"]["name"], package["metadata"]["version"], sep="==")
' "$work/missing.json" >"$work/missing.txt"
mkdir "$carry/wheels"
"$there/pip" download --quiet --no-deps --only-binary=:all: --dest "$carry/wheels" --requirement "$work/missing.txt"

"$there/pip" install --quiet --upgrade --target "$build/tools" nanobind cmake ninja
export PATH=$build/tools/bin:$carry:$PATH PYTHONPATH=$build/tools
rm -rf "$build/out"
cmake -G Ninja -S . -B "$build/cmake" -DCMAKE_BUILD_TYPE=Release "-DPython_EXECUTABLE=$there/python" "-DJAXDALI_OUTPUT=$build/out/jaxdali" \
  -DJAXDALI_BUNDLED_CODECS=ON "${options[@]}" "${kernels[@]}"
cmake --build "$build/cmake"
codec=$build/cmake/codecs/jaxdali_libjpeg/build/CMakeCache.txt
grep -q '^WITH_SIMD:.*=\(1\|ON\|TRUE\)$' "$codec" || { echo "libjpeg-turbo was built without SIMD: see $codec" >&2; exit 1; }
strip --strip-unneeded "$build"/out/jaxdali/*.so
tar --create --xz --directory "$build/out" --file "$carry/modules.tar.xz" jaxdali

(cd "$carry" && find . -type f -exec sha256sum {} +)
list | xargs -0 stat --format=%s | awk '{total += $1} END {printf "%.1f MiB travel\n", total / 1048576; exit total > 64 * 1048576}' ||
  { echo "that is more than 64 MiB" >&2; exit 1; }

#!/usr/bin/env bash
# The CUDA kernels on an NVIDIA GPU, without network: builds them, compares them with the CPU's, looks for bad memory accesses, measures.
#   tests/gpu/run.sh [--dry-run] [PART ...]       parts: build tests sanitizer timings bench suite; default: all, in this order
# Needs nvcc, a C++ compiler, and in the Python that $PYTHON names (default: python3) jax with its CUDA plugin, nanobind, cmake,
# ninja, Pillow and pytest; for the comparison with nvJPEG torchvision; for the sanitizer compute-sanitizer. Headers of libjpeg-turbo,
# libpng and zlib may be missing when tests/gpu/carry.sh has put their sources, and nasm, into build/carry. Modules are built into
# the source folder.
# A part that fails or takes too long does not stop the next; the exit status is 1 if one did. What it prints is Markdown, for
# tests/benchmarks/RESULTS.md; it is also written to results.md in $OUT or else build/gpu, where the parts' logs lie, too.
# --dry-run: shows on a machine without GPU that all this runs: emulated kernels, small sizes, no sanitizer.
# So far no GPU was at hand: the CUDA kernels never ran on one.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
dry=""
if [ "${1:-}" = --dry-run ]; then
  dry=--dry-run
  shift
fi
if [ $# = 0 ]; then set -- build tests sanitizer timings bench suite; fi
python=$(command -v "${PYTHON:-python3}")
export PATH="$(dirname "$python"):$PATH:/usr/local/cuda/bin:$PWD/build/carry"  # there: nasm
out=${OUT:-build/gpu}
mkdir -p build/gpu "$out"
results=$out/results.md
: >"$results"
failed=()

# Several processes and libraries share the card: XLA must not take all memory for itself.
export PYTHONPATH="$PWD" PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false TF_CPP_MIN_LOG_LEVEL=2
if [ -n "$dry" ]; then export JAX_PLATFORMS=cpu; else export JAX_PLATFORMS=cuda,cpu; fi

say() { printf '%s\n' "$@" | tee -a "$results"; }

# run NAME SECONDS COMMAND ...: the whole output to NAME.log; what belongs into the report is printed by the caller.
run() {
  local name=$1 limit=$2 log=$out/$1.log start=$SECONDS status
  shift 2
  timeout --kill-after=20 "$limit" "$@" >"$log" 2>&1
  status=$?
  seconds=$((SECONDS - start))
  if [ $status != 0 ]; then
    failed+=("$name")
    say "" "**$name failed** after $seconds s (status $status$([ $status = 124 ] && echo ", over its limit of $limit s")); the end of $name.log:" "" '```'
    tail -n 40 "$log" | tee -a "$results"
    say '```'
  fi
  return $status
}

report() { tee -a "$results" <"$out/$1.log"; }

closing() {  # of a pytest run
  say "" "$1: $(grep -E '(passed|failed|error|skipped).* in [0-9.]+s' "$out/$1.log" | tail -n 1 | tr -d '=')"
  grep -E '^(SKIPPED|FAILED|ERROR)' "$out/$1.log" | cut -c 1-300 | tee -a "$results"
}

build() {
  # What is missing on this machine is built from the archives carried to it.
  if [ -e build/carry/nasm ]; then chmod +x build/carry/nasm; fi
  local options=() kind archive
  for kind in JPEG:libjpeg-turbo PNG:libpng ZLIB:zlib; do
    archive=$(find "$PWD/build/carry" -name "${kind#*:}*.tar.*" 2>/dev/null | head -n 1)
    if [ -n "$archive" ]; then options+=("-DJAXDALI_${kind%:*}_TARBALL=$archive"); fi
  done
  if [ -n "$dry" ]; then
    options+=(-DJAXDALI_EMULATED=ON)
  else
    options+=("-DJAXDALI_CUDA=ON" "-DJAXDALI_CUDA_REAL=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)")
  fi
  run configure 180 cmake -G Ninja -S . -B build/gpu/cmake -DCMAKE_BUILD_TYPE=Release "-DPython_EXECUTABLE=$python" "-DJAXDALI_OUTPUT=$PWD/jaxdali" \
    "${options[@]}" ${JAXDALI_CMAKE_OPTIONS:-} || return
  run build 420 cmake --build build/gpu/cmake -- -k 0 || return
  say "" "Built in $seconds s."
}

tests() {
  if [ -n "$dry" ]; then
    run tests 500 "$python" -m pytest -q tests/ffi/test_emulated.py tests/ffi/test_jpeg_kernels.py tests/gpu
  else
    JAXDALI_REQUIRE_CUDA=1 run tests 500 "$python" -m pytest -q -W default --durations=10 tests/gpu
  fi
  closing tests
}

# The operators' tests once more, with JAX's default device a GPU. Left out: what needs several devices.
suite() {
  local parallel=()
  if [ -z "$dry" ] && "$python" -c 'import xdist' 2>/dev/null; then parallel=(-n 6); fi
  run suite 500 "$python" -m pytest -q -W default --durations=5 "${parallel[@]}" tests/fn tests/ffi/test_window.py
  closing suite
}

sanitizer() {
  if [ -n "$dry" ]; then
    run sanitized 300 "$python" tests/gpu/sanitized.py --dry-run && report sanitized
    return
  fi
  # Each buffer an allocation of its own, and only our kernels: XLA's are not what is looked at.
  export XLA_PYTHON_CLIENT_ALLOCATOR=platform
  local check=(compute-sanitizer --error-exitcode 1 --report-api-errors no --kernel-name kernel_substring=jaxdali)
  run memcheck 280 "${check[@]}" --tool memcheck "$python" tests/gpu/sanitized.py
  run racecheck 240 "${check[@]}" --tool racecheck "$python" tests/gpu/sanitized.py --cases 3 --files 8
  unset XLA_PYTHON_CLIENT_ALLOCATOR
  local name
  for name in memcheck racecheck; do say "" "$name: $(grep -E '^=+ (ERROR SUMMARY|RACECHECK SUMMARY)' "$out/$name.log" | tail -n 1)"; done
}

timings() {
  run timings 240 "$python" tests/gpu/timings.py $dry && report timings
}

bench() {
  run bench_decode 240 "$python" tests/gpu/bench_decode.py $dry && report bench_decode
  run bench_pipeline 240 "$python" tests/gpu/bench_pipeline.py $dry && report bench_pipeline
}

say "# $([ -n "$dry" ] && echo "Dry run, without a GPU" || echo "On a GPU"), $(date -u '+%Y-%m-%d %H:%M') UTC" ""
say "\`tests/gpu/run.sh $dry $*\`, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)" ""
if [ -z "$dry" ]; then say "- $(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader 2>&1 | head -n 1)"; fi
say "- $(nproc) cores of $(grep -m 1 'model name' /proc/cpuinfo | cut -d: -f2 | xargs), $(grep MemTotal /proc/meminfo | awk '{printf "%.0f GiB", $2 / 1048576}'), $(uname -r)"
say "- $("$python" --version), $(nvcc --version 2>/dev/null | grep -o 'release [0-9.]*' | sed 's/release/nvcc/'), $(c++ --version | head -n 1)"
say "- $("$python" -c '
import importlib.metadata as m
for name in ("jax", "jaxlib", "jax-cuda13-plugin", "torch", "torchvision", "numpy", "Pillow", "nanobind", "cmake"):
    try:
        print(name, m.version(name), end=", ")
    except m.PackageNotFoundError:
        print("no", name, end=", ")
')"

for part in "$@"; do
  case $part in
    build | tests | suite | sanitizer | timings | bench)
      start=$SECONDS
      say "" "## $part"
      "$part"
      say "" "($part: $((SECONDS - start)) s)"
      if [ "$part" = build ] && compgen -G 'jaxdali/_cpu*.so' >/dev/null; then
        say "" '```'
        "$python" -c 'import jaxdali; jaxdali.show_config()' 2>&1 | tee -a "$results"
        say '```'
      fi
      ;;
    *)
      say "unknown part $part"
      failed+=("$part")
      ;;
  esac
done
say "" "Failed: ${failed[*]:-nothing}"
[ ${#failed[@]} = 0 ]

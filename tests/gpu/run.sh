#!/usr/bin/env bash
# The CUDA kernels on an NVIDIA GPU, without network: compares them with the CPU's, looks for bad memory accesses, measures.
#
#   tests/gpu/run.sh [--dry-run] PART ...
#
# Call these four in this order. Each is of use alone, prints its report as it goes, even if half of it fails, and ends within LIMIT seconds:
#   LIMIT=240 run.sh tests           each test a process of its own: 40 batches of each kernel beside the CPU's, the JPEG decoder, pipelines;
#                                    what fails runs again under memcheck
#   LIMIT=300 run.sh timings bench   times beside the traffic of memory; decoding beside nvJPEG; a whole pipeline
#   LIMIT=180 run.sh sanitizer       compute-sanitizer: memcheck, racecheck
#   LIMIT=480 run.sh suite           the operators' tests with the GPU as the default device, golden data first
# The first three take at most 12 minutes together; no call takes more than 8, the default of LIMIT. So far no GPU was at hand, so what they
# really take is not known: estimates are 3, 3 and 3 minutes on 16 cores.
#
# Beforehand, where there is a network, run tests/gpu/carry.sh. It puts into build/carry the modules, and the packages that a machine with
# nothing but Python, jax and jax's CUDA plugin lacks; both are unpacked here. Where the modules do not load, or there are none, they are compiled
# first (part `build`, 2 to 5 minutes), which needs nvcc, a C++ compiler, cmake and ninja.
#
# --dry-run   shows on a machine without GPU that all this runs: the emulated kernels on a CPU device, small sizes, no sanitizer
# --help      prints this
#
# CASES       batches of each kernel that `tests` compares (40); 0: all of about 1,500, for each of which XLA compiles a program
#
# Prints Markdown for tests/benchmarks/RESULTS.md. Into $OUT, or else build/gpu, go results.md, logs.tar.gz, and from `build` modules.tar.gz,
# which a fresh machine unpacks in the source folder instead of compiling. A part that fails does not stop the next; then the exit status is 1.
#
# The Python is what $PYTHON names (default: python3). Packages in folders of PYTHONPATH are found. The comparison with nvJPEG needs
# torchvision; the sanitizer, and tests that fail, compute-sanitizer.
set -uo pipefail
dry=""
if [ "${1:-}" = --dry-run ]; then
  dry=--dry-run
  shift
fi
case ${1:---help} in
  -h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
    exit
    ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=$(command -v "${PYTHON:-python3}")
export PATH="$(dirname "$python"):$PATH:/usr/local/cuda/bin:$PWD/build/carry"  # there: nasm
out=${OUT:-build/gpu}
logs=$PWD/build/gpu/logs
rm -rf "$logs"
mkdir -p "$logs/each" "$out"
results=$out/results.md
: >"$results"
failed=()

# Several processes and libraries share the card: XLA must not take all memory for itself.
packages=$PWD/build/gpu/packages
export PYTHONPATH="$PWD:$packages${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false TF_CPP_MIN_LOG_LEVEL=2
export JAX_COMPILATION_CACHE_DIR=$PWD/build/gpu/cache JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.2
if [ -n "$dry" ]; then export JAX_PLATFORMS=cpu; else export JAX_PLATFORMS=cuda,cpu; fi

say() { printf '%s\n' "$@" | tee -a "$results"; }

left() { echo $((${LIMIT:-480} > SECONDS ? ${LIMIT:-480} - SECONDS : 1)); }  # seconds of the call

# run NAME SECONDS COMMAND ...: the whole output to NAME.log; what belongs into the report is printed by the caller.
run() {
  local name=$1 limit=$2 log=$logs/$1.log start=$SECONDS status
  if ((limit > $(left))); then limit=$(left); fi
  shift 2
  timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1
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

report() { tee -a "$results" <"$logs/$1.log"; }

closing() {  # of a pytest run
  say "" "$1: $(grep -E '(passed|failed|error|skipped).* in [0-9.]+s' "$logs/$1.log" | tail -n 1 | tr -d '=')"
  grep -E '^(SKIPPED|FAILED|ERROR)' "$logs/$1.log" | cut -c 1-300 | tee -a "$results"
}

loads() { "$python" -c "import jaxdali._cpu, jaxdali._$([ -n "$dry" ] && echo emulated || echo cuda)" >"$logs/loads.log" 2>&1; }

# Unpacks what was carried here: packages that this Python lacks, and the modules.
unpack() {
  local wheel
  for wheel in build/carry/wheels/*.whl; do
    if [ -e "$wheel" ]; then "$python" -m zipfile -e "$wheel" "$packages"; fi
  done
  if [ -e build/carry/modules.tar.xz ] && ! compgen -G 'jaxdali/_*.so' >/dev/null; then
    "$python" -c 'import tarfile; tarfile.open("build/carry/modules.tar.xz").extractall(".", filter="data")'
    if ! loads; then
      say "" "The modules in build/carry do not load: $(tail -n 1 "$logs/loads.log")"
      rm jaxdali/_*.so
    fi
  fi
}

build() {
  # What is missing on this machine is built from the archives carried to it.
  if [ -e build/carry/nasm ]; then chmod +x build/carry/nasm; fi
  local options=() kind archive
  for kind in JPEG:libjpeg-turbo PNG:libpng ZLIB:zlib DEFLATE:libdeflate WEBP:libwebp; do
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
  tar --create --gzip --file "$out/modules.tar.gz" jaxdali/*.so
  say "" "Built in $seconds s."
}

# One test in a process of its own, for a wrong access spoils all later calls of its process. A test that fails runs again under memcheck, as long as
# the machine is there.
one_test() {  # LOG TEST
  local status
  timeout --kill-after=5 120 "$python" -m pytest -q -W default "$2" >"$1" 2>&1
  status=$?
  if [ $status != 0 ] && [ -z "$dry" ]; then
    CASES=6 XLA_PYTHON_CLIENT_ALLOCATOR=platform timeout --kill-after=5 100 compute-sanitizer --tool memcheck --report-api-errors no --print-limit 5 \
      --kernel-name kernel_substring=jaxdali "$python" -m pytest -q -W default "$2" 2>&1 | grep '^=====' | head -n 40 >"$1.memcheck"
  fi
  echo "$status $2: $(tail -n 1 "$1" | tr -d '=')"
}
export -f one_test
export python dry logs

all_tests() {  # FILE ...
  local ids
  "$python" -m pytest -q --collect-only "$@" >"$logs/collected" 2>&1 || { cat "$logs/collected"; return 1; }
  mapfile -t ids < <(grep '::' "$logs/collected")
  for ((i = 0; i < ${#ids[@]}; i++)); do printf '%s\0%s\0' "$logs/each/$i.log" "${ids[i]}"; done |
    xargs -0 -n 2 -P "$(($(nproc) < 8 ? $(nproc) : 8))" bash -c 'one_test "$@"' one_test | tee "$logs/each/all"
  [ "$(wc -l <"$logs/each/all")" = ${#ids[@]} ] && ! grep -v '^0 ' "$logs/each/all"
}
export -f all_tests

tests() {
  local log
  if [ -n "$dry" ]; then export JAXDALI_DRY_RUN=1 CASES=${CASES:-2}; else export CASES=${CASES:-40}; fi
  touch "$logs/collected" "$logs/each/all"
  JAXDALI_REQUIRE_CUDA=1 run tests "$(left)" bash -c 'all_tests "$@"' all_tests tests/gpu
  say "" "tests: $(grep -c '^0 ' "$logs/each/all") of $(grep -c '::' "$logs/collected") passed" ""
  grep -v '^0 ' "$logs/each/all" | tee -a "$results"
  grep '::' "$logs/collected" | grep -vFf <(sed 's/^[0-9]* \(.*\): .*/\1/' "$logs/each/all") | sed 's/^/not finished: /' | tee -a "$results"
  for log in "$logs"/each/*.memcheck; do
    if [ -s "$log" ]; then say "" "memcheck of $(basename "${log%.memcheck}"):" '```' "$(cat "$log")" '```'; fi
  done
}

# The operators' tests once more, with JAX's default device a GPU. Left out: what needs several devices.
suite() {
  local pytest=("$python" -m pytest -q -W default --durations=5 --continue-on-collection-errors)
  if [ -z "$dry" ] && "$python" -c 'import xdist' 2>/dev/null; then pytest+=(-n 8); fi
  if [ -n "$dry" ]; then export JAXDALI_GOLDEN_EVERY=60; fi
  run golden 240 "${pytest[@]}" tests/fn/test_golden.py
  closing golden
  if [ -n "$dry" ]; then return; fi
  run suite 480 "${pytest[@]}" tests/fn tests/ffi/test_window.py --deselect tests/fn/test_golden.py
  closing suite
}

sanitizer() {
  if [ -n "$dry" ]; then
    run sanitized 300 "$python" tests/gpu/sanitized.py --dry-run --cases 1 --files 8 && report sanitized
    return
  fi
  # Each buffer an allocation of its own, and only our kernels: XLA's are not what is looked at.
  export XLA_PYTHON_CLIENT_ALLOCATOR=platform
  local check=(compute-sanitizer --error-exitcode 1 --report-api-errors no --kernel-name kernel_substring=jaxdali)
  run memcheck $(($(left) * 11 / 20)) "${check[@]}" --tool memcheck "$python" tests/gpu/sanitized.py
  run racecheck 240 "${check[@]}" --tool racecheck "$python" tests/gpu/sanitized.py --cases 3 --files 8
  unset XLA_PYTHON_CLIENT_ALLOCATOR
  local name
  for name in memcheck racecheck; do
    say "" "$name: $(grep -E '^=+ (ERROR SUMMARY|RACECHECK SUMMARY)' "$logs/$name.log" | tail -n 1); done: $(grep -E '^(decode|[a-z_]+): ' "$logs/$name.log" | paste -sd ',')"
  done
}

timings() {
  run timings 200 "$python" tests/gpu/timings.py $dry && report timings
}

bench() {
  run bench_decode 120 "$python" tests/gpu/bench_decode.py $dry && report bench_decode
  run bench_pipeline 200 "$python" tests/gpu/bench_pipeline.py $dry && report bench_pipeline
}

say "# $([ -n "$dry" ] && echo "Dry run, without a GPU" || echo "On a GPU"), $(date -u '+%Y-%m-%d %H:%M') UTC" ""
say "\`tests/gpu/run.sh $dry $*\`, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)" ""
if [ -z "$dry" ]; then say "- $(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader 2>&1 | head -n 1)"; fi
say "- $(nproc) cores of $(grep -m 1 'model name' /proc/cpuinfo | cut -d: -f2 | xargs), $(grep MemTotal /proc/meminfo | awk '{printf "%.0f GiB", $2 / 1048576}'), $(uname -r)"
say "- $("$python" --version), $(nvcc --version 2>/dev/null | grep -o 'release [0-9.]*' | sed 's/release/nvcc/'), $(c++ --version 2>/dev/null | head -n 1)"
unpack
say "- $("$python" -c '
import importlib.metadata as m
for name in ("jax", "jaxlib", "jax-cuda13-plugin", "torch", "torchvision", "numpy", "Pillow", "nanobind", "cmake"):
    try:
        print(name, m.version(name), end=", ")
    except m.PackageNotFoundError:
        print("no", name, end=", ")
')"

case " $* " in
  *" build "*) ;;
  *) loads || set -- build "$@" ;;
esac

for part in "$@"; do
  case $part in
    build | tests | suite | sanitizer | timings | bench)
      start=$SECONDS
      say "" "## $part"
      "$part"
      say "" "($part: $((SECONDS - start)) s)"
      ;;
    *)
      say "unknown part $part"
      failed+=("$part")
      ;;
  esac
done
say "" '```'
"$python" -c 'import jaxdali; jaxdali.show_config()' 2>&1 | tee -a "$results"
say '```'
say "" "Failed: ${failed[*]:-nothing}"
tar --create --gzip --file "$out/logs.tar.gz" --directory "$logs" .
[ ${#failed[@]} = 0 ]

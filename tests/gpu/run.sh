#!/usr/bin/env bash
# The CUDA kernels on an NVIDIA GPU, without network: compares them with the CPU's, looks for bad memory accesses, measures.
#
#   tests/gpu/run.sh [--dry-run] PART ...
#
# Each part prints its report as it goes, so that half of it is of use, and all of a call ends within LIMIT seconds (480). A machine that is at
# hand for a quarter of an hour has time for two commands. The first one shows whether the kernels work, and how fast; it is meant for 420 s:
#   python3 tests/gpu/first.py; CASES=25 LIMIT=150 tests/gpu/run.sh tests
# The second one depends on what that showed. If all is right, it measures:
#   LIMIT=210 tests/gpu/run.sh bench timings
# The parts:
#   tests      each test a process of its own: batches of each kernel beside the CPU's, the JPEG decoder, pipelines. Tests whose process crashed, or
#              whose log has a bad access, run again under memcheck afterwards, if there is time
#   bench      decoding beside nvJPEG; a whole pipeline
#   timings    times of each kernel beside the traffic of memory
#   limits     what bounds each kernel, as Nsight Compute sees it
#   sanitizer  compute-sanitizer: memcheck, racecheck
#   suite      the operators' tests with the GPU as the default device, golden data first; 5 to 10 minutes
#   build      compiles the modules
# On a machine with an H100 and 16 cores, first.py takes 66 s, tests 43, bench 31, timings 45.
#
# Beforehand, where there is a network, run tests/gpu/carry.sh. It puts into build/carry the modules, and the packages that a machine with
# nothing but Python, jax and jax's CUDA plugin lacks; both are unpacked here. Where the modules do not load, or there are none, they are compiled
# first (part `build`, 2 to 5 minutes), which needs nvcc, a C++ compiler, cmake and ninja.
#
# --dry-run   shows on a machine without GPU that all this runs: the emulated kernels on a CPU device, small sizes, no sanitizer
# --help      prints this
#
# CASES       batches of each kernel that `tests` compares (25); 0: all of about 1,500, for each of which XLA compiles a program
#
# Prints Markdown for tests/benchmarks/RESULTS.md. Into $OUT, or else build/gpu, go as they come: results.md, what is printed; log.txt, all that the
# commands say; tests.txt, a line for each test; timings.md. At the end comes logs.tar.gz, and from `build` modules.tar.gz, which a fresh machine
# unpacks in the source folder instead of compiling. A part that fails does not stop the next; then the exit status is 1.
#
# The Python is what $PYTHON names (default: python3). Packages in folders of PYTHONPATH are found. The comparison with nvJPEG needs
# torchvision; the sanitizer, and tests that crash, compute-sanitizer; limits, ncu.
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
all=$out/log.txt
: >"$results"
: >"$all"
failed=()

# Several processes and libraries share the card: XLA must not take all memory for itself.
packages=$PWD/build/gpu/packages
export PYTHONPATH="$PWD:$packages${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false TF_CPP_MIN_LOG_LEVEL=2
export JAX_COMPILATION_CACHE_DIR=$PWD/build/gpu/cache JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.2
if [ -n "$dry" ]; then export JAX_PLATFORMS=cpu; else export JAX_PLATFORMS=cuda,cpu; fi

say() { printf '%s\n' "$@" | tee -a "$results"; }

left() { echo $((${LIMIT:-480} > SECONDS ? ${LIMIT:-480} - SECONDS : 1)); }  # seconds of the call

end_session() {  # SESSION: kills all its processes
  local file line fields
  for file in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null <"$file" || continue
    read -ra fields <<<"${line##*) }"  # behind the name, which may have spaces: state, parent, group, session
    if [ "${fields[3]}" = "$1" ]; then kill -KILL "${line%% *}" 2>/dev/null; fi
  done
  true
}

# A command in a session of its own. When it has ended, or is over its limit, or this script is told to end, no process of the session is left:
# `timeout` alone ends only its own process group, and each further `timeout` in the command has another one.
in_session() (  # SECONDS COMMAND ...
  setsid timeout --kill-after=10 "$@" &
  session=$!
  trap 'end_session "$session"; exit 143' INT TERM HUP
  wait "$session"
  status=$?
  end_session "$session"
  exit "$status"
)

# run NAME SECONDS COMMAND ...: the whole output to NAME.log and log.txt; what belongs into the report is printed by the caller.
# show NAME SECONDS COMMAND ...: what the command prints belongs into the report, and is there at once.
run() { command_to /dev/null "$@" >/dev/null; }
show() { command_to "$results" "$@"; }

command_to() {
  local report=$1 name=$2 limit=$3 log=$logs/$2.log start=$SECONDS status
  if ((limit > $(left))); then limit=$(left); fi
  shift 3
  printf '\n## %s\n' "$name" >>"$all"
  if [ "$report" = /dev/null ]; then
    in_session "$limit" "$@" 2>&1 | tee -a "$all" "$log"
    status=${PIPESTATUS[0]}
  else
    in_session "$limit" "$@" 2>>"$all" | tee -a "$all" "$log" "$report"
    status=${PIPESTATUS[0]}
  fi
  seconds=$((SECONDS - start))
  if [ "$status" != 0 ]; then
    failed+=("$name")
    {
      printf '%s\n' "" "**$name failed** after $seconds s (status $status$([ "$status" = 124 ] && echo ", over its limit of $limit s"))"
      if [ "$name" != tests ]; then printf '%s\n' "The end of what it said:" "" '```' "$(tail -n 40 "$all" | cut -c 1-300)" '```'; fi
    } | tee -a "$results" >&3
  fi
  return "$status"
}
exec 3>&1  # the report, where stdout is something else

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
    options+=("-DJAXDALI_CUDA=ON" "-DJAXDALI_CUDA_LINES=ON" "-DJAXDALI_CUDA_REAL=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)")
  fi
  run configure 180 cmake -G Ninja -S . -B build/gpu/cmake -DCMAKE_BUILD_TYPE=Release "-DPython_EXECUTABLE=$python" "-DJAXDALI_OUTPUT=$PWD/jaxdali" \
    "${options[@]}" ${JAXDALI_CMAKE_OPTIONS:-} || return
  run build 420 cmake --build build/gpu/cmake -- -k 0 || return
  tar --create --gzip --file "$out/modules.tar.gz" jaxdali/*.so
  say "" "Built in $seconds s."
}

# One test in a process of its own, for a wrong access spoils all later calls of its process.
one_test() {  # NUMBER TEST
  local log=$logs/each/$1.log status
  echo "$2" >"$log"
  timeout --kill-after=5 120 "$python" -m pytest -q -W default --tb=short "$2" >>"$log" 2>&1
  status=$?
  printf '%s\t%s\t%s\n' $status "$2" "$( (grep -m 1 '^Fatal Python error' "$log" || tail -n 1 "$log") | tr -d '=' | cut -c 1-200)" | tee -a "$out/tests.txt"
  if [ $status != 0 ]; then
    printf '%s\n' "" "### $2" "$(tail -n 80 "$log" | cut -c 1-300)" >>"$all"
    if ((status > 128)) || grep -qE "$bad_access" "$log"; then echo "$2" >"$logs/each/$1.crashed"; fi
  fi
}
bad_access='illegal memory access|misaligned address|CUDA_ERROR_(ILLEGAL_ADDRESS|LAUNCH_FAILED|MISALIGNED_ADDRESS)|unspecified launch failure'
bad_access+='|died with <Signals'  # a process that a test started

all_tests() {  # FILE ...
  local ids
  "$python" -m pytest -q --collect-only "$@" >"$logs/collected" 2>&1 || { cat "$logs/collected" && return 1; }
  mapfile -t ids < <(grep '::' "$logs/collected")
  for ((i = 0; i < ${#ids[@]}; i++)); do printf '%s\0%s\0' "$i" "${ids[i]}"; done |
    xargs -0 -n 2 -P "$(($(nproc) < 8 ? $(nproc) : 8))" bash -c 'one_test "$@"' one_test
}

one_memcheck() {  # FILE with the name of a test
  local test
  test=$(<"$1")
  XLA_PYTHON_CLIENT_ALLOCATOR=platform timeout --kill-after=5 100 compute-sanitizer --tool memcheck --report-api-errors no --print-limit 5 \
    --kernel-name kernel_substring=jaxdali "$python" -m pytest -q -W default "$test" >"$1.memcheck" 2>&1
  printf '%s\n' "" "memcheck of $test:" '```' "$(grep '^=====' "$1.memcheck" | head -n 40 | cut -c 1-200)" '```'
}

all_memchecks() { printf '%s\0' "$logs"/each/*.crashed | xargs -0 -n 1 -P 4 bash -c 'one_memcheck "$1"' one_memcheck; }
export -f one_test all_tests one_memcheck all_memchecks
export python logs out all bad_access

tests() {
  local file passed
  if [ -n "$dry" ]; then export JAXDALI_DRY_RUN=1 CASES=${CASES:-2}; else export CASES=${CASES:-25}; fi
  : >"$logs/collected"
  : >"$out/tests.txt"
  say ""
  JAXDALI_REQUIRE_CUDA=1 show tests "$(left)" bash -c 'all_tests "$@"' all_tests tests/gpu
  passed=$(grep -c '^0	' "$out/tests.txt")
  say "" "tests: $passed of $(grep -c '::' "$logs/collected") passed"
  grep '::' "$logs/collected" | grep -vxFf <(cut -f 2 "$out/tests.txt") | sed 's/^/not finished: /' | tee -a "$results"
  for file in "$logs"/each/*.log; do
    if grep -q '^E  ' "$file"; then
      printf '%s\n' "" "$(head -n 1 "$file"):" '```' "$(grep '^E  ' "$file" | cut -c 1-310)" '```' >>"$results"
      printf '%s\n' "$(head -n 1 "$file"):" "$(grep '^E  ' "$file" | head -n 2 | cut -c 1-250)"  # output is cut where it is long
    fi
  done
  if [ "$passed" != "$(wc -l <"$out/tests.txt")" ] && [[ " ${failed[*]} " != *" tests "* ]]; then failed+=(tests); fi
  if compgen -G "$logs/each/*.crashed" >/dev/null && [ -z "$dry" ] && (($(left) > 20)); then
    JAXDALI_REQUIRE_CUDA=1 show memchecks "$(left)" bash -c all_memchecks
  fi
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
    show sanitized 300 "$python" tests/gpu/sanitized.py --dry-run --cases 1 --files 8
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

timings() { show timings 200 "$python" tests/gpu/timings.py $dry; }

limits() { if [ -z "$dry" ]; then show limits 120 "$python" tests/gpu/limits.py; fi; }

bench() {
  show bench_decode 120 "$python" tests/gpu/bench_decode.py $dry
  show bench_pipeline 200 "$python" tests/gpu/bench_pipeline.py $dry
}

say "# $([ -n "$dry" ] && echo "Dry run, without a GPU" || echo "On a GPU"), $(date -u '+%Y-%m-%d %H:%M') UTC" ""
say "\`tests/gpu/run.sh $dry $*\`, commit $(cat build/carry/commit 2>/dev/null || git rev-parse HEAD 2>/dev/null || echo unknown)" ""
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
    build | tests | suite | sanitizer | timings | bench | limits)
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
"$python" -c 'import jax, jaxdali; jax.devices(); jaxdali.show_config()' 2>&1 | tee -a "$results"
say '```'
say "" "Failed: ${failed[*]:-nothing}"
tar --create --gzip --file "$out/logs.tar.gz" --directory "$logs" .
[ ${#failed[@]} = 0 ]

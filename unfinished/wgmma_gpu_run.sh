#!/usr/bin/env bash
# All questions of one GPU call, in order of importance, each under a timeout. usage: run.sh OUT [seconds, default 90]
# Three files come to OUT: hopper_all.txt (also printed), hopper_bench.csv, hopper_logs.tgz.
here=$(cd "$(dirname "$0")" && pwd); final=$1; limit=${2:-90}; out=/tmp/hopper_run; rm -rf "$out"; mkdir -p "$out" "$final"
start=$SECONDS; left() { echo $((limit - SECONDS + start)); }
chmod +x "$here"/bin/*; export OMP_WAIT_POLICY=passive
one() {  # name timeout command...
  local name=$1 t=$2; shift 2
  [ "$(left)" -gt 2 ] || { echo "$name: no time left" >> "$out/summary.txt"; return; }
  timeout -k 1 "$t" "$@" > "$out/$name.txt" 2>&1; local rc=$?
  echo "$name: rc $rc after $((SECONDS - start)) s" >> "$out/summary.txt"; return $rc
}
: > "$out/summary.txt"
# 1. bytes: simple to hard; a hang costs 6 s at most and names its tile by the last line printed
for s in 0 1 2 3 4 5 6 7 8 9 10 11; do one "debug_$s" 6 "$here/bin/debug" $s; done
# 2. what the chip gives
one shift 5 "$here/bin/probe" shift
one peak 8 "$here/bin/probe" peak
one rates 12 "$here/bin/probe" rates
# 3. times; a kernel that hangs is skipped after 15 s without progress
skip='' first=0
for try in 1 2 3 4; do
  [ "$(left)" -gt 8 ] || break
  timeout -k 1 $(( $(left) - 6 > 40 ? 40 : $(left) - 6 )) "$here/bin/bench" 128 $first "$out/state" "$out/bench.csv" "$skip" >> "$out/bench.txt" 2>&1
  echo "bench from layer $first: rc $? at $((SECONDS - start)) s; state: $(cat "$out/state")" >> "$out/summary.txt"
  read -r layer name < "$out/state"; [ "$layer" = done ] && break
  first=$layer; skip="$skip,$name"
done
one bench_1 12 "$here/bin/bench" 1 0 "$out/state1" "$out/bench1.csv"
# 4. the tests, as far as time goes
one tests $(( $(left) > 3 ? $(left) - 1 : 2 )) "$here/bin/test_kernels_conv2d_cuda" --gtest_filter='Conv2dCudaWgmma.OneTile*:Conv2dCudaWgmma.Windows*:Conv2dCudaWgmma.Largest*:Conv2dCudaWgmma.EveryTile*:Conv2dCudaWgmma.Layers*:Conv2dCuda.Random*'
{
  cat "$out/summary.txt"
  echo "-- bytes"; grep -hE "^shape|WRONG|rows of 64|rror" "$out"/debug_*.txt | cut -c1-230 | head -60
  grep -c right "$out"/debug_*.txt | sed 's#.*/##' | tr '\n' ' '; echo
  echo "-- chip"; cat "$out"/shift.txt "$out"/peak.txt "$out"/rates.txt | cut -c1-200
  echo "-- times (us)"; cat "$out"/bench.txt "$out"/bench_1.txt 2>/dev/null | cut -c1-260
  echo "-- tests"; grep -E "^\[  (FAILED|PASSED)|Failure|not |rror" "$out"/tests.txt | head -20
} | tee "$final/hopper_all.txt"
cat "$out"/bench*.csv > "$final/hopper_bench.csv" 2>/dev/null
tar -C "$out" -czf "$final/hopper_logs.tgz" .

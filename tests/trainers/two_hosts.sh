#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts as octet sees them, two network namespaces with a wire between: they train one network together; then the
# wire is cut, and both stop within 30 s. Needs root, iproute2, a build with training and the data of Debian's
# dataset-fashion-mnist. Usage: tests/trainers/two_hosts.sh [TORCHRUN]: that torchrun starts them, else each by itself.
set -euo pipefail
cd "$(dirname "$0")/../.."
torchrun=${1:-}
work=$(mktemp -d)
fail() { echo "two_hosts: $*" >&2; tail -n 20 "$work"/*.log >&2; exit 1; }
clean() {
  for host in 1 2; do
    ip netns pids "octet$host" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns del "octet$host" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap clean EXIT
for host in 1 2; do ip netns add "octet$host"; done
ip link add wire1 netns octet1 type veth peer name wire2 netns octet2
for host in 1 2; do
  ip -n "octet$host" addr add "10.77.0.$host/24" dev "wire$host"
  ip -n "octet$host" link set lo up
  ip -n "octet$host" link set "wire$host" up
done

start() {  # start RUN ARGUMENT...: octet train on both hosts; their processes are in `pids`
  local host run=$1
  shift
  pids=()
  for host in 1 2; do
    local on=(ip netns exec "octet$host" env OMP_NUM_THREADS=1)
    local octet=(build/octet train recipes/small_cnn_fashion_mnist_smoke.yaml --device cpu --set threads=1 --out "$run" "$@")
    if [ -n "$torchrun" ]; then  # it takes both for one host by their name: is_host and local-addr tell them apart
      "${on[@]}" "$torchrun" --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint 10.77.0.1:29500 \
        --rdzv-conf "is_host=$((2 - host))" --local-addr "10.77.0.$host" --no-python "${octet[@]}" >"$work/$host.log" 2>&1 &
    else
      "${on[@]}" RANK=$((host - 1)) WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 \
        "${octet[@]}" >"$work/$host.log" 2>&1 &
    fi
    pids+=($!)
  done
}

start "$work/whole"
for pid in "${pids[@]}"; do wait "$pid" || fail "training on two hosts failed"; done
build/octet compare "$work/whole" --device cpu --quiet >/dev/null || fail "codes differ"
echo "two hosts trained one network; no code differs"

torchrun=  # its agents would wait for each other longer than octet does
start "$work/cut" --set train.epochs=1000
until [ -e "$work/cut/checkpoints/float.state.safetensors" ]; do
  kill -0 "${pids[0]}" 2>/dev/null || fail "ended before its first state"
  sleep 0.2
done
ip -n octet2 link set wire2 down
cut_at=$SECONDS
for pid in "${pids[@]}"; do
  code=0
  wait "$pid" || code=$?
  [ "$code" = 1 ] || fail "exit code $code after the wire was cut, not 1"
done
[ $((SECONDS - cut_at)) -le 30 ] || fail "stopped $((SECONDS - cut_at)) s after the wire was cut"
grep -h "gives no sign of life" "$work"/*.log
echo "both stopped $((SECONDS - cut_at)) s after the wire was cut"

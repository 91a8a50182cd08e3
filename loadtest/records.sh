#!/usr/bin/env bash
# Holds the record store against what Redis itself can do: rounds of redis-benchmark with the admission script alone and of
# records_bench with admissions and settlements, in turn on one private Redis that syncs every write. Prints both medians and their
# ratio, as pairs and as scripts, and the memory of a finished run; fails when scripts are below the target or memory is above it.
#
#   loadtest/records.sh [RECORDS_BENCH]      (default build/records_bench)
#   ROUNDS=5 N=100000 CLIENTS=50 IN_FLIGHT=512 TARGET=0.5 KEPT=60000 (0: rates alone) in the environment
set -euo pipefail

bench=${1:-build/records_bench}
rounds=${ROUNDS:-5} n=${N:-100000} clients=${CLIENTS:-50} in_flight=${IN_FLIGHT:-512} target=${TARGET:-0.5}

dir=$(mktemp -d)
sock=$dir/redis.sock
redis-server --port 0 --unixsocket "$sock" --dir "$dir" --appendonly yes --appendfsync always --save '' \
    --auto-aof-rewrite-percentage 0 --logfile "$dir/redis.log" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$dir"' EXIT

redis() { redis-cli -s "$sock" "$@"; }
for _ in $(seq 100); do
    [ "$(redis ping 2>/dev/null)" = PONG ] && break
    sleep 0.05
done
[ "$(redis ping)" = PONG ]

# Keys and arguments as records_bench has them: the same lengths, fresh ids, limits that are never reached.
ids=585a1b46c55ebacc1dfdd4336e302328__rand_int__aaaa # 32 bytes of a digest, 16 of a run
tag='plimsoll:2:{default}:__rand_int__aaaaaaaaaaaaaaaaaaaa'
id=__rand_int____rand_int__aaaaaaaa
sha=$(redis script load "$("$bench" --admit-script)")

admissions() {
    redis-benchmark -s "$sock" -c "$clients" -P 64 -n "$n" -r 100000000 --csv EVALSHA "$sha" 3 "$tag:slots" "$tag:rate" \
        "$tag:claim:$id" p "$ids" "$id" 45000 604845000 100000 1 1000000 1000 | tail -n 1 | awk -F'","' '{print $2}'
}

pairs() {
    local said
    said=$("$bench" "unix://$sock" "$n" "$in_flight") || { echo "does not count: ${said:-no answer}" >&2; return 1; }
    echo "${said%% *}"
}

median() { sort -n | awk '{v[NR] = $1} END {print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

# A script has 250 ms, the disk's sync included: a round in which the disk took longer is made again.
round=1 again=0
while [ "$round" -le "$rounds" ]; do
    redis flushall >/dev/null
    a=$(admissions)
    redis flushall >/dev/null
    if ! p=$(pairs); then
        again=$((again + 1))
        [ "$again" -le "$rounds" ] || { echo "the disk is too slow or too busy to measure" >&2; exit 1; }
        continue
    fi
    printf 'round %d: %.0f admissions/s, %.0f pairs/s\n' "$round" "$a" "$p"
    echo "$a" >>"$dir/admissions"
    echo "$p" >>"$dir/pairs"
    round=$((round + 1))
done

a=$(median <"$dir/admissions")
p=$(median <"$dir/pairs")

awk -v a="$a" -v p="$p" -v t="$target" 'BEGIN {
    printf "median: %.0f admissions/s (redis-benchmark -P 64), %.0f pairs/s (admission and settling), ratio %.2f as pairs, ", a, p, p / a
    printf "%.2f as scripts, target %.2f\n", 2 * p / a, t
    exit 2 * p / a < t
}'
[ "${KEPT:-}" != 0 ] || exit 0

# What a finished run leaves in memory, its answer's output not kept: claim, record, index and leaf.
used() { redis info memory | awk -F: '/^used_memory:/ {print $2 + 0}'; }
kept=${KEPT:-60000} # with this many Redis' tables are nine tenths full; just after they grew a run costs 32 bytes more
redis config set appendonly no >/dev/null
redis flushall >/dev/null
before=$(used)
memory=unmeasured
for _ in 1 2 3; do
    if "$bench" "unix://$sock" "$kept" 64 1000 none >/dev/null; then
        memory=$((($(used) - before) / kept))
        break
    fi
    redis flushall >/dev/null
done
echo "memory: $memory bytes a finished run without its output, target 716"
[ "$memory" != unmeasured ] && [ "$memory" -le 716 ]

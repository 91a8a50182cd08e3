#!/bin/sh
# Serves on loopback with state in ./build/serve and a token made on the first start: a gateway to try things on. Any setting given in the
# environment wins.
set -eu
state=${PLIMSOLL_STATE_DIR:-$PWD/build/serve}
mkdir -p "$state"
if [ -z "${PLIMSOLL_TOKEN:-}${PLIMSOLL_CLIENTS_FILE:-}" ]; then
    [ -s "$state/token" ] || (umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > "$state/token")
    PLIMSOLL_TOKEN=$(cat "$state/token")
    export PLIMSOLL_TOKEN
    echo "The caller's token is in $state/token. In another shell:" >&2
    echo "  export PLIMSOLL_CALLER_TOKEN=\$(cat $state/token)" >&2
    echo "  echo 'console.log(6*7)' | build/plimsoll run -" >&2
fi
export PLIMSOLL_STATE_DIR="$state"
export PLIMSOLL_ADDR="${PLIMSOLL_ADDR:-127.0.0.1:8746}"
export PLIMSOLL_LOG_FORMAT="${PLIMSOLL_LOG_FORMAT:-text}"
exec build/plimsolld

#!/bin/sh
# A worker in shell: runs a command for each job of a kind, with nothing but curl, grep and sed.
#
#   rowlock serve --open &
#   examples/worker.sh greet sh -c 'cat >> greetings.jsonl'
#   rowlock enqueue greet '{"name": "Ada"}'
#
# The command gets the lease as JSON on stdin: id, token, kind, payload and so on. Exit code 0 is a
# success, anything else a failed attempt. Its lease is extended while it runs.
set -eu

server=${ROWLOCK_URL:-http://127.0.0.1:8765}
worker=${ROWLOCK_WORKER:-shell-$$}
lease=${ROWLOCK_LEASE:-30}
kind=$1
shift

call() {
    curl --silent --show-error --fail-with-body --max-time 60 \
        --header 'Content-Type: application/json' \
        ${ROWLOCK_TOKEN:+--header "Authorization: Bearer $ROWLOCK_TOKEN"} \
        --data "$2" "$server$1"
}

# The value of a field, as it stands in the answer: the first one, which is the lease's own.
field() {
    printf '%s' "$answer" | grep -o "\"$1\":[^,}]*" | head -n 1 | sed 's/^[^:]*://; s/"//g'
}

beat() {
    while sleep "$((lease / 3 > 0 ? lease / 3 : 1))"; do
        call /v1/leases/heartbeat \
            "{\"lease\": $lease, \"leases\": [{\"id\": \"$id\", \"token\": $token}]}" || true
    done
}

stopping=
trap 'stopping=1' TERM INT
while [ -z "$stopping" ]; do
    asked="{\"worker\": \"$worker\", \"kinds\": [\"$kind\"], \"lease\": $lease, \"wait\": 2}"
    answer=$(call /v1/leases "$asked") || { sleep 1; continue; }
    id=$(field id)
    [ -n "$id" ] || continue
    token=$(field token)
    beat > /dev/null 2>&1 &
    beating=$!
    if printf '%s\n' "$answer" | sed 's/^{"leases":\[//; s/\]}$//' | "$@"; then
        outcome='"outcome": "succeeded"'
    else
        outcome="\"outcome\": \"failed\", \"error\": {\"type\": \"ExitCode\", \"message\": \"$?\"}"
    fi
    # A subshell that has only just been started loses any other signal.
    kill -KILL "$beating"
    wait "$beating" 2> /dev/null || true
    until call /v1/leases/settle \
        "{\"settlements\": [{\"id\": \"$id\", \"token\": $token, $outcome}]}"; do
        sleep 1
    done
    echo
done

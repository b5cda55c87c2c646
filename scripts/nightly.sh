#!/bin/sh
# nightly.sh FILE BUDGET [--OPTION VALUE ...]: one release a day, in runs/DAY, paid from a shared budget; what it said is in
# runs/DAY.json.
# A run that was stopped from outside (exit codes of 75 and above) is given again: it goes on, and pays only for what it showed.
# After a restart of the machine the same line continues the day's run; when that is finished it changes nothing.
set -u
file=$1 budget=$2
shift 2
run=runs/${DAY:-$(date +%F)}
mkdir -p runs
while :; do
    dpgen train "$file" --ledger "$budget" --run_dir "$run" --json "$@" > "$run.new"
    code=$?
    if [ "$code" -lt 75 ]; then
        [ "$code" -eq 2 ] && [ -e "$run.json" ] || mv "$run.new" "$run.json" # a finished run is refused: its answer stays
        rm -f "$run.new"
        exit "$code"
    fi
    sleep "${WAIT:-60}"
done

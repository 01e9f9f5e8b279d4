#!/usr/bin/env bash
# A federation on this machine over TLS with node authentication: a SuperLink, 3 SuperNodes and 3
# sites with a real objective; a site and the server are killed with SIGKILL on the way. Checks at
# the end that nothing was lost, evaluated twice or charged twice, and ends by itself.
#
# Usage: benchmarks/loopback.sh [--short]      (needs the extra `flower`; PYTHON names the interpreter)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-$here/../.venv/bin/python}
export OMP_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
exec timeout --kill-after=30 1500 "$python" "$here/loopback.py" "$@"

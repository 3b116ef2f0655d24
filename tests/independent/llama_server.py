"""llama.cpp's own HTTP server, from xllamacpp, with the bundled model: a program, run by path.

python tests/independent/llama_server.py PORT KEY
"""

from __future__ import annotations

import importlib
import signal
import sys
from typing import Any

from penstock.providers.embedded import weights

MODEL = weights.BUNDLED
_CONTEXT = 8192
_PROMPT_STEP = 512


def main(port: int, key: str) -> None:
    """Serve until a signal ends the process."""
    library: Any = importlib.import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = str(weights.find(MODEL).path)
    params.model_alias = {MODEL}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.api_keys = [key]
    params.n_ctx = _CONTEXT
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = _PROMPT_STEP
    # Two threads on two busy cores are many times slower than one.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.embedding = True
    params.pooling_type = library.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    params.use_jinja = True
    params.warmup = False
    params.verbosity = -1
    params.ui = False
    params.endpoint_slots = False
    server = library.Server(params)
    signal.pause()
    del server  # until here, for it serves as long as it lives


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

"""A llama.cpp that takes ids and answers seconds: run by a Python that has llama-cpp-python.

Knows nothing of inferno, which is not installed there. One JSON object a line, in and out.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any


def main(model: str, threads: int, context: int) -> None:
    import llama_cpp as api  # type: ignore[import-not-found, unused-ignore]

    silent = api.llama_log_callback(lambda *_: None)  # ctypes does not keep it alive
    api.llama_log_set(silent, ctypes.c_void_p(0))
    api.llama_backend_init()
    loaded = api.llama_model_load_from_file(model.encode(), api.llama_model_default_params())
    if not loaded:
        sys.exit("llama.cpp could not load the model")
    params = api.llama_context_default_params()
    params.n_ctx = params.n_batch = context
    params.n_threads = params.n_threads_batch = threads
    state = api.llama_init_from_model(loaded, params)
    memory = api.llama_get_memory(state)

    def process(ids: list[int]) -> None:
        tokens = (api.llama_token * len(ids))(*ids)
        if api.llama_decode(state, api.llama_batch_get_one(tokens, len(ids))) != 0:
            sys.exit("llama_decode failed")
        api.llama_get_logits(state)

    features = api.llama_print_system_info().decode()
    isas = {"AVX512_VNNI": "avx512_vnni", "AVX_VNNI": "avx_vnni", "AVX2": "avx2", "NEON": "neon"}
    isa = next((name for key, name in isas.items() if f"{key} = 1" in features), "?")
    vocab_size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(loaded))
    tell({"name": f"llama.cpp {isa}", "version": api.__version__, "vocab_size": vocab_size})
    for line in sys.stdin:
        request = json.loads(line)
        api.llama_memory_clear(memory, True)
        began = time.perf_counter()
        process(request["prefill"])
        if "decode" in request:
            began = time.perf_counter()
            for token in request["decode"]:
                process([token])
        tell({"seconds": time.perf_counter() - began})
    os._exit(0)  # its destructors have nothing to tell us


def tell(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

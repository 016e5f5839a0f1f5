"""Prefill and decode beside llama.cpp: same file, ids, threads; runs interleaved, one at a time.

    python benchmarks/versus.py MODEL.gguf --peer build/peer/bin/python

`--peer` is the Python of an environment that has llama-cpp-python, built for this machine:

    python -m venv build/peer && build/peer/bin/pip install llama-cpp-python

Each engine loads once, in a process of its own, and answers one request after the other; the two
take turns, so that a slow minute of the machine hits both. A request is: clear the cache, process
`prompt` random ids, then feed `--generate` more one by one (no sampling, no text). The first round
is warm-up.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time


def serve_inferno(model: str, threads: int, context: int) -> None:
    """Answer requests from stdin with timings on stdout, by inferno."""
    import inferno

    engine = inferno.Engine.load(model, threads=threads, context=context)

    def run(prompt: list[int], more: list[int]) -> tuple[float, float]:
        session = engine.new_session()
        began = time.perf_counter()
        session.feed(prompt)
        prefilled = time.perf_counter()
        for token in more:
            session.feed([token])
        return prefilled - began, time.perf_counter() - prefilled

    answer_requests(run, f"inferno ({engine.isa})", engine.config.vocab_size)


def serve_llama_cpp(model: str, threads: int, context: int) -> None:
    """The same, by llama.cpp through llama-cpp-python's C interface."""
    import ctypes

    import llama_cpp as api

    silent = api.llama_log_callback(lambda *_: None)  # ctypes does not keep it alive
    api.llama_log_set(silent, ctypes.c_void_p(0))
    api.llama_backend_init()
    loaded = api.llama_model_load_from_file(model.encode(), api.llama_model_default_params())
    params = api.llama_context_default_params()
    params.n_ctx = params.n_batch = context
    params.n_threads = params.n_threads_batch = threads
    state = api.llama_init_from_model(loaded, params)
    memory = api.llama_get_memory(state)

    def decode(ids: list[int]) -> None:
        tokens = (api.llama_token * len(ids))(*ids)
        if api.llama_decode(state, api.llama_batch_get_one(tokens, len(ids))) != 0:
            raise RuntimeError("llama_decode failed")
        api.llama_get_logits(state)

    def run(prompt: list[int], more: list[int]) -> tuple[float, float]:
        api.llama_memory_clear(memory, True)
        began = time.perf_counter()
        decode(prompt)
        prefilled = time.perf_counter()
        for token in more:
            decode([token])
        return prefilled - began, time.perf_counter() - prefilled

    features = api.llama_print_system_info().decode()
    name = f"llama.cpp ({'avx512_vnni' if 'AVX512_VNNI = 1' in features else 'avx2'})"
    answer_requests(run, name, api.llama_vocab_n_tokens(api.llama_model_get_vocab(loaded)))


def answer_requests(run, name: str, vocab_size: int) -> None:
    print(json.dumps({"name": name, "vocab_size": vocab_size}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(run(request["prompt"], request["more"])), flush=True)


class Contender:
    """One engine in its process."""

    def __init__(self, python: str, role: str, options: argparse.Namespace) -> None:
        command = [python, __file__, options.model, "--role", role]
        command += ["--threads", str(options.threads), "--context", str(options.context)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        hello = self._read()
        self.name, self.vocab_size = hello["name"], hello["vocab_size"]

    def run(self, prompt: list[int], more: list[int]) -> tuple[float, float]:
        self._process.stdin.write(json.dumps({"prompt": prompt, "more": more}) + "\n")
        self._process.stdin.flush()
        return tuple(self._read())

    def _read(self):
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"error: a contender ended: {self._process.args}")
        return json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--peer", help="Python with llama-cpp-python; without it, inferno alone")
    parser.add_argument("--prompt", default="50,500,1500")
    parser.add_argument("--generate", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--role", choices=["inferno", "llama.cpp"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        serve = {"inferno": serve_inferno, "llama.cpp": serve_llama_cpp}[options.role]
        serve(options.model, options.threads, options.context)
        return
    contenders = [Contender(sys.executable, "inferno", options)]
    if options.peer:
        contenders.append(Contender(options.peer, "llama.cpp", options))
    vocab_size = min(c.vocab_size for c in contenders)
    draw = random.Random(0)
    results = []
    for length in map(int, options.prompt.split(",")):
        rates: dict[str, list[tuple[float, float]]] = {c.name: [] for c in contenders}
        for run in range(options.runs + 1):
            # New ids each time: no engine may reuse what it computed for an earlier run.
            prompt = [draw.randrange(vocab_size) for _ in range(length)]
            more = [draw.randrange(vocab_size) for _ in range(options.generate)]
            for contender in contenders:
                prefill, decode = contender.run(prompt, more)
                if run:
                    rates[contender.name].append((length / prefill, options.generate / decode))
        for column, what in enumerate((f"prefill {length}", f"decode at {length}")):
            medians = {n: statistics.median(r[column] for r in rs) for n, rs in rates.items()}
            row = {"test": what, "tokens_per_second": medians}
            text = "  ".join(f"{n} {m:8.1f}" for n, m in medians.items())
            if len(contenders) == 2:
                ours, theirs = (rates[c.name] for c in contenders)
                pairs = sorted(a[column] / b[column] for a, b in zip(ours, theirs, strict=True))
                row["ratio"] = [pairs[0], statistics.median(pairs), pairs[-1]]
                text += f"  ratio {row['ratio'][1]:.2f} ({pairs[0]:.2f} to {pairs[-1]:.2f})"
            results.append(row)
            if not options.json:
                print(f"{what:16} {text}", flush=True)
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()

"""
The native core of inferno: plans, packed weights, KV caches, forward passes, sampling.
"""

from collections.abc import Mapping, Sequence, Set
from types import ModuleType
from typing import Annotated

import numpy
from numpy.typing import NDArray


def isas() -> list[str]:
    """Instruction sets this build has and this CPU can run, best first."""

def choose_isa(isa: str) -> str:
    """
    The instruction set named, or the best for an empty name; an impossible one is InvalidOption.
    """

def activations() -> list[tuple[str, int, int]]:
    """
    What matrices read: (name, columns of a block, bytes of a token's block).
    """

def formats() -> list[tuple[str, str, int, int, int, bool]]:
    """
    Weight formats: (name, activation, columns of a block, bytes of a stored block, bytes of a packed block of 16 rows, whether floats can be quantized to it).
    """

class ThreadPool:
    """Threads that walk the phases of a forward pass together."""

    def __init__(self, threads: int) -> None: ...

    @property
    def size(self) -> int: ...

def probe_machine(pool: ThreadPool, isa: str) -> tuple[float, float, float]:
    """
    Measure the machine: (bytes read, int8 multiply-adds, float multiply-adds) a second, on all threads.
    """

class Plan:
    """What a model computes, as data; written once by inferno.lowering."""

    def __init__(self, vocab_size: int, num_layers: int, kv_heads: int, head_dim: int, experts: int = 0, experts_per_token: int = 0) -> None: ...

    def rows(self, columns: int, extent: str) -> int:
        """Add a buffer of float rows; returns its number."""

    def pack(self, kind: str, columns: int, extent: str) -> int:
        """Add a buffer of packed activations; returns its number."""

    def matrix(self, name: str, format: str, rows: int, columns: int) -> int: ...

    def vector(self, name: str, values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int: ...

    def rope(self, inverse_frequencies: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], factor: float) -> int: ...

    def op(self, kind: str, *, input: tuple[int, int, int] = (-1, 0, 0), second: tuple[int, int, int] = (-1, 0, 0), third: tuple[int, int, int] = (-1, 0, 0), output: tuple[int, int, int] = (-1, 0, 0), pack: int = -1, matrix: int = -1, vector: int = -1, accumulate: bool = False, epsilon: float = 0.0, scale: float = 1.0, limit: float = 0.0, normalize: bool = False, layer: int = -1, heads: int = 0, kv_heads: int = 0, head_dim: int = 0, rope: int = -1, window: int = 0) -> None:
        """
        Append an operation; slices are (rows, offset, width). See native/runtime/plan.h.
        """

class Model:
    """A plan and its packed weights."""

    def __init__(self, plan: Plan) -> None: ...

    def pack(self, pool: ThreadPool, matrix: int, first_row: int, num_rows: int, format: str, data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], rope_head_dim: int = 0) -> None:
        """Pack stored rows into a matrix, quantizing if the formats differ."""

    @property
    def weight_bytes(self) -> int: ...

class PagePool:
    """Pages of 64 positions of keys and values."""

    def __init__(self, layers: int, kv_heads: int, head_dim: int, type: str) -> None: ...

    @property
    def bytes_per_position(self) -> int: ...

    @property
    def allocated_bytes(self) -> int: ...

    @property
    def page_bytes(self) -> int: ...

    @property
    def pages_in_use(self) -> int: ...

    @property
    def ready_pages(self) -> int:
        """Free pages whose memory the system has given already."""

    def prepare_page(self) -> None:
        """Have one more of these."""

class Page:
    """A page of a pool, kept for other caches to adopt."""

    @property
    def is_shared(self) -> bool: ...

class KvCache:
    """Keys and values of one sequence."""

    def __init__(self, pool: PagePool) -> None: ...

    def __len__(self) -> int: ...

    def truncate(self, length: int) -> None: ...

    def page(self, index: int) -> Page:
        """Share the page that holds positions 64 index and on."""

    def adopt(self, pages: Sequence[Page], length: int) -> None:
        """Hold the first `length` positions of `pages`, and nothing else."""

    def fork(self) -> KvCache:
        """Share the pages; whoever writes into a shared page copies it first."""

class Executor:
    """Runs forward passes of one model."""

    def __init__(self, model: Model, pool: ThreadPool, isa: str) -> None: ...

    def forward(self, batch: Sequence[tuple[KvCache, Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], str]]) -> NDArray[numpy.float32]:
        """
        Process [(cache, token ids, "none"|"last"|"all")]; the caches grow by their ids. Returns the logits wanted: (rows, vocab_size) f32.
        """

    def forward_hidden(self, batch: Sequence[tuple[KvCache, Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], str]]) -> NDArray[numpy.float32]:
        """
        The same, but up to the last norm and not to the logits: (rows, hidden_size) f32.
        """

    @property
    def calibrating(self) -> bool:
        """
        Whether forward passes add up what matrices multiply; setting it forgets earlier sums.
        """

    @calibrating.setter
    def calibrating(self, arg: bool, /) -> None: ...

    def mean_squares(self, matrix: int) -> NDArray[numpy.float64]:
        """
        The mean square of what each column of a matrix was multiplied by since `calibrating` was set: (columns,) f64; of a matrix that no floats were multiplied by, nothing.
        """

    def log_sum_exp(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> float: ...

    def divergence(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], total: float, others: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], other_total: float) -> float: ...

    @property
    def profiling(self) -> bool:
        """
        Whether forward passes are timed by phase; setting it forgets earlier times.
        """

    @profiling.setter
    def profiling(self, arg: bool, /) -> None: ...

    def profile(self) -> list[tuple[str, float, float, int]]:
        """
        (phase, wall seconds, seconds summed over threads, how many) of all passes since `profiling` was set.
        """

    @property
    def scratch_bytes(self) -> int: ...

    @property
    def isa(self) -> str: ...

class Sampler:
    """Chooses tokens; a draw is keyed by (seed, position, choice)."""

    def __init__(self, executor: Executor, *, num_tokens: int, temperature: float, top_k: int = 0, typical_p: float = 1.0, top_p: float = 1.0, min_p: float = 0.0, repetition_penalty: float = 1.0, presence_penalty: float = 0.0, frequency_penalty: float = 0.0, repeat_last_n: int = -1, dry_multiplier: float = 0.0, dry_base: float = 1.75, dry_allowed_length: int = 2, dry_penalty_last_n: int = -1, dry_sequence_breakers: Set[int] = ..., xtc_probability: float = 0.0, xtc_threshold: float = 0.10000000149011612, logit_bias: Mapping[int, float] = {}, suppress_tokens: Sequence[int] = [], seed: int, choice: int = 0) -> None:
        """
        What is not said is off. `repeat_last_n` and `dry_penalty_last_n`: -1 for the whole text.
        """

    def accept(self, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], generated: bool) -> None: ...

    def sample(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], position: int, mask: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> int:
        """
        `mask`: a bit a token, lowest first, in words of 32; a token without its bit is not chosen.
        """

def sample(samplers: Sequence[Sampler], logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], positions: Sequence[int], masks: Sequence[Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None] = []) -> list[int]:
    """
    The next token of each of several texts, from a row of logits each: (texts, num_tokens or more) f32.
    `masks`: none, or one of `Sampler.sample`, or None, a text.
    """

def encode_rows(pool: ThreadPool, format: str, source: str, data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, quantizer: str = 'reference', importance: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> NDArray[numpy.uint8]:
    """
    Encode stored rows of floats as `format` is stored in files: (bytes,) u8. `importance`: (columns,) f32, what squared errors are weighted by.
    """

def cache_types() -> list[str]:
    """How keys and values can be kept."""

def quantizers() -> list[str]:
    """How floats can become blocks."""

def top_logits(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], count: int) -> list[tuple[int, float]]:
    """The `count` most likely (token, logit), best first."""

testing: ModuleType

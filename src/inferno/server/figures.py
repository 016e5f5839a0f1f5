"""The figures of a reply: OpenAI's `usage`, llama.cpp's `timings`, and our own `inferno` object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inferno.server.sampling import effective

if TYPE_CHECKING:
    from inferno.generation import Generation
    from inferno.server.replies import Reply


def usage(generations: Sequence[Generation], prompts: int = 1) -> dict[str, Any]:
    """Return token counts. A prompt is counted once, however many choices were made of it."""
    stats = [generation.stats for generation in generations]
    firsts = stats[:: max(1, len(stats) // prompts)]
    prompt_tokens = sum(s.prompt_tokens for s in firsts)
    completion_tokens = sum(s.generated_tokens for s in stats)
    accepted = sum(s.accepted for s in stats)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(s.cached_tokens for s in firsts)},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(s.drafted for s in stats) - accepted,
        },
    }


def timings(generation: Generation) -> dict[str, Any]:
    """Return llama.cpp's timings of one text."""
    s = generation._stats
    processed = s.prompt_tokens - s.cached_tokens
    return {
        "cache_n": s.cached_tokens,
        "prompt_n": processed,
        "prompt_ms": 1e3 * s.prefill_seconds,
        "prompt_per_token_ms": _ratio(1e3 * s.prefill_seconds, processed),
        "prompt_per_second": _ratio(processed, s.prefill_seconds),
        "predicted_n": s.generated_tokens,
        "predicted_ms": 1e3 * s.decode_seconds,
        "predicted_per_token_ms": _ratio(1e3 * s.decode_seconds, s.generated_tokens),
        "predicted_per_second": _ratio(s.generated_tokens, s.decode_seconds),
        "draft_n": s.drafted,
        "draft_n_accepted": s.accepted,
    }


def report(reply: Reply, ignored: Sequence[str], dropped_messages: int = 0) -> dict[str, Any]:
    """Return what no other field has: how the answer came about, and what it is not."""
    stats = [generation.stats for generation in reply.generations]
    warnings = [f"ignored: {name[:64]}" for name in ignored]
    if dropped_messages:
        warnings.append(f"the oldest {dropped_messages} messages were dropped to fit the context")
    return {
        "cached_tokens": stats[0].cached_tokens,
        "prefill_seconds": stats[0].prefill_seconds,
        "decode_seconds": max(s.decode_seconds for s in stats),
        "first_token_seconds": reply.first_token,
        "speculation": {
            "drafted": sum(s.drafted for s in stats),
            "accepted": sum(s.accepted for s in stats),
        },
        "parameters": effective(reply.generations[0].params),
        "dropped_messages": dropped_messages,
        "warnings": warnings,
    }


def _ratio(count: float, per: float) -> float:
    return count / per if per > 0 else 0.0

"""Counters in the format of Prometheus: our own names, and those of llama.cpp's server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from inferno.server.service import Service


def exposition(service: Service) -> tuple[bytes, str]:
    """Return the metrics as text, and its media type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Totals(service))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Totals(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        scheduler, engine = self._service.scheduler, self._service.engine
        t = scheduler.totals
        processed = t.prompt_tokens - t.cached_tokens
        pages = engine._loaded.pages
        counters = {
            "inferno_requests": ("texts asked for", t.requests),
            "inferno_requests_cancelled": ("texts that were cancelled", t.cancelled),
            "inferno_requests_failed": ("texts that ended with an error", t.failed),
            "inferno_requests_preempted": ("texts put back for want of memory", t.preempted),
            "inferno_prompt_tokens": ("tokens of prompts", t.prompt_tokens),
            "inferno_prompt_tokens_cached": ("of these, not processed again", t.cached_tokens),
            "inferno_generated_tokens": ("tokens generated", t.generated_tokens),
            "inferno_drafted_tokens": ("guesses verified", t.drafted),
            "inferno_accepted_tokens": ("guesses that held", t.accepted),
            "inferno_prefill_seconds": ("time in prompts, summed over texts", t.prefill_seconds),
            "inferno_decode_seconds": ("time in replies, summed over texts", t.decode_seconds),
            "inferno_passes": ("forward passes", t.passes),
            "llamacpp:prompt_tokens": ("prompt tokens processed", processed),
            "llamacpp:prompt_tokens_cached": ("prompt tokens reused", t.cached_tokens),
            "llamacpp:prompt_seconds": ("prompt process time", t.prefill_seconds),
            "llamacpp:tokens_predicted": ("generation tokens processed", t.generated_tokens),
            "llamacpp:tokens_predicted_seconds": ("predict process time", t.decode_seconds),
            "llamacpp:n_decode": ("forward passes", t.passes),
            "llamacpp:spec_decode_num_draft_tokens": ("guesses verified", t.drafted),
            "llamacpp:spec_decode_num_accepted_tokens": ("guesses that held", t.accepted),
        }
        used = pages.pages_in_use * pages.page_bytes
        gauges = {
            "inferno_texts_running": ("texts being read or written", scheduler.num_running),
            "inferno_texts_waiting": ("texts in the queue", scheduler.num_waiting),
            "inferno_kv_cache_bytes": ("pages in use", used),
            "inferno_kv_cache_capacity_bytes": (
                "what pages may take",
                engine.prefix_cache.capacity,
            ),
            "inferno_prefix_cache_pages": (
                "pages kept to be shared",
                engine.prefix_cache.num_pages,
            ),
            "llamacpp:prompt_tokens_seconds": (
                "average prompt throughput",
                _ratio(processed, t.prefill_seconds),
            ),
            "llamacpp:predicted_tokens_seconds": (
                "average generation throughput",
                _ratio(t.generated_tokens, t.decode_seconds),
            ),
            "llamacpp:requests_processing": ("requests processing", scheduler.num_running),
            "llamacpp:requests_deferred": ("requests deferred", scheduler.num_waiting),
            "llamacpp:n_busy_slots_per_decode": (
                "texts in a forward pass, on average",
                _ratio(t.decoding_rows, t.passes),
            ),
        }
        for name, (help, value) in counters.items():
            yield CounterMetricFamily(name, help, value=value)
        for name, (help, value) in gauges.items():
            yield GaugeMetricFamily(name, help, value=value)


def _ratio(count: float, per: float) -> float:
    return count / per if per else 0.0

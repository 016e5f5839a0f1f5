"""How the server is: `/health`, `/props`, `/metrics`, and `/slots`, which it has not."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from inferno.server.failures import RequestFailed
from inferno.server.metrics import exposition
from inferno.server.sampling import effective
from inferno.server.service import service_of

router = APIRouter()


@router.head("/health", include_in_schema=False)
@router.get("/health", summary="Is the model loaded?")
async def health(request: Request) -> dict[str, Any]:
    service = service_of(request)
    if not service.scheduler.is_healthy:
        raise RequestFailed("The engine has stopped", 503, "unavailable_error", code="stopped")
    return {"status": "ok"}


@router.get("/props", summary="What is served, and how")
async def props(request: Request) -> dict[str, Any]:
    import inferno
    from inferno.options import SamplingParams

    service = service_of(request)
    engine = service.engine
    params = SamplingParams().merged(**engine.config.generation)
    return {
        "default_generation_settings": {"n_ctx": engine.context, "params": effective(params)},
        "total_slots": service.settings.max_streams,
        "model_alias": service.model,
        "model_path": service.model,
        "chat_template": engine.template.template,
        "bos_token": engine.template.bos_token,
        "eos_token": engine.template.eos_token,
        "modalities": {"vision": False, "audio": False},
        "build_info": f"inferno {inferno.__version__}",
        "is_sleeping": False,
        "isa": engine.isa,
        "threads": engine.threads,
        "weight_formats": list(engine.weight_formats),
        "kv_cache": engine.kv_cache,
        "memory": {
            "weights": engine.memory.weights,
            "kv_cache_per_token": engine.memory.kv_cache_per_token,
            "kv_cache_capacity": engine.prefix_cache.capacity,
        },
    }


@router.get("/metrics", summary="Counters for Prometheus")
async def metrics(request: Request) -> Response:
    body, media_type = exposition(service_of(request))
    return Response(body, media_type=media_type)


@router.get("/slots", summary="Not supported: texts have no slots here")
async def slots() -> None:
    raise RequestFailed(
        "This server has no slots: every request shares what any other has processed",
        501,
        "not_supported_error",
        code="not_supported",
    )

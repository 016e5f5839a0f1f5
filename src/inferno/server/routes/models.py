"""`GET /v1/models`: the one model that is served."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from inferno.excerpt import shown
from inferno.server.failures import RequestFailed
from inferno.server.service import Service, service_of

router = APIRouter()


@router.get("/models", summary="List the models")
async def models(request: Request) -> dict[str, Any]:
    return {"object": "list", "data": [describe(service_of(request))]}


@router.get("/models/{model:path}", summary="Describe a model")
async def model(request: Request, model: str) -> dict[str, Any]:
    service = service_of(request)
    if model != service.model:
        raise RequestFailed(
            f"The model {shown(model)} does not exist; there is `{service.model}`",
            404,
            "not_found_error",
            "model",
            "model_not_found",
        )
    return describe(service)


def describe(service: Service) -> dict[str, Any]:
    """Return the model as OpenAI lists it, with llama.cpp's `meta`."""
    engine = service.engine
    return {
        "id": service.model,
        "object": "model",
        "created": service.created,
        "owned_by": "inferno",
        "meta": {
            "n_vocab": engine.config.vocab_size,
            "n_ctx": engine.context,
            "n_ctx_train": engine.config.max_position_embeddings,
            "n_embd": engine.config.hidden_size,
            "n_params": engine.num_parameters,
            "size": engine.memory.weights,
            "formats": list(engine.weight_formats),
        },
    }

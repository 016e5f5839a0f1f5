"""`POST /v1/embeddings`: texts to vectors of length 1."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from inferno.scoring import POOLINGS
from inferno.server import openapi
from inferno.server.asked import check_model, headers_of
from inferno.server.body import read_fields
from inferno.server.embedding import dimensions_of, embed, ids_of, inputs_of
from inferno.server.event_stream import to_json
from inferno.server.service import in_thread, service_of

router = APIRouter()

ENCODINGS = ("float", "base64")


@router.post("/embeddings", summary="Texts to vectors", openapi_extra=openapi.EMBEDDINGS)
async def embeddings(request: Request) -> Response:
    """OpenAI's embeddings. Extension: `pooling`, how tokens become a vector: mean, last or cls.

    `dimensions` are the first of a vector, which is then made of length 1 again.
    """
    service = service_of(request)
    fields = await read_fields(request)
    check_model(fields, service)
    inputs = inputs_of(fields.take("input"), "input")
    encoding = fields.one_of("encoding_format", ENCODINGS) or "float"
    dimensions = dimensions_of(fields, service.engine)
    pooling = fields.one_of("pooling", POOLINGS) or "mean"
    fields.ignore("user")
    fields.finish(strict=service.settings.strict)
    ids = await in_thread(partial(ids_of, service.engine, inputs, "input"))
    vectors = await embed(service, ids, request.receive, dimensions=dimensions, pooling=pooling)
    tokens = sum(map(len, ids))
    body = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": embedding}
            for index, embedding in enumerate(_encoded(v, encoding) for v in vectors)
        ],
        "model": service.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return Response(
        to_json(body), media_type="application/json", headers=headers_of(request, fields)
    )


def _encoded(vector: Any, encoding: str) -> list[float] | str:
    """Return a vector as a list, or as the base64 of its little-endian floats."""
    if encoding == "float":
        return list(vector.tolist())
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()

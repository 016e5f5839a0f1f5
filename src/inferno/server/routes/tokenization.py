"""Text to ids and back, and messages to text, as llama.cpp's server and vLLM's have it."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from inferno.server import openapi
from inferno.server.body import read_fields
from inferno.server.fields import wrong
from inferno.server.prompts import chat_prompt_of
from inferno.server.service import in_thread, service_of
from inferno.server.tools import tools_of_request

router = APIRouter()

MAX_IDS = 1 << 20


@router.post("/tokenize", summary="Text to token ids", openapi_extra=openapi.TOKENIZE)
async def tokenize(request: Request) -> dict[str, Any]:
    """`content` or `prompt`; `add_special` (BOS), `parse_special` (control tokens in the text
    count, true by default), `with_pieces`."""
    service = service_of(request)
    tokenizer = service.engine.tokenizer
    fields = await read_fields(request)
    text = fields.text("content")
    prompt = fields.text("prompt")
    text = prompt if text is None else text
    if text is None:
        raise wrong("content", "a string", None)
    adds = fields.flag("add_special", fields.flag("add_special_tokens"))
    special = fields.flag("parse_special", True)
    with_pieces = fields.flag("with_pieces")
    fields.ignore("model")
    fields.finish(strict=service.settings.strict)
    ids = await in_thread(partial(tokenizer.encode, text, special))
    if adds and tokenizer.adds_bos and tokenizer.bos_id is not None:
        ids = [tokenizer.bos_id, *(ids[1:] if ids[:1] == [tokenizer.bos_id] else ids)]
    return {
        "tokens": [_with_piece(tokenizer, id) for id in ids] if with_pieces else ids,
        "count": len(ids),
        "max_model_len": service.engine.context,
    }


@router.post("/detokenize", summary="Token ids to text", openapi_extra=openapi.DETOKENIZE)
async def detokenize(request: Request) -> dict[str, Any]:
    """`tokens`; the text comes as `content` and as `prompt`."""
    service = service_of(request)
    fields = await read_fields(request)
    tokens = fields.items("tokens", MAX_IDS)
    if tokens is None or not all(type(id) is int for id in tokens):
        raise wrong("tokens", "a list of integers", tokens)
    fields.ignore("model")
    fields.finish(strict=service.settings.strict)
    text = await in_thread(partial(service.engine.tokenizer.decode, tokens, special=True))
    return {"content": text, "prompt": text}


@router.post(
    "/apply-template",
    summary="Messages to the text of a prompt",
    openapi_extra=openapi.COMPOSE,
)
async def apply_template(request: Request) -> dict[str, Any]:
    service = service_of(request)
    fields = await read_fields(request)
    tools = await tools_of_request(fields, service)
    prompt = chat_prompt_of(fields, service.engine, None if tools is None else tools.described)
    return {"prompt": await in_thread(partial(prompt.text, service.engine))}


@router.get("/tokenizer_info", summary="Describe the tokenizer")
async def tokenizer_info(request: Request) -> dict[str, Any]:
    engine = service_of(request).engine
    tokenizer = engine.tokenizer
    eos = [tokenizer.token_text(id) for id in tokenizer.eos_ids]
    bos = None if tokenizer.bos_id is None else tokenizer.token_text(tokenizer.bos_id)
    return {
        "bos_token": bos,
        "eos_token": eos[0] if eos else None,
        "pad_token": eos[0] if eos else None,
        "vocab_size": tokenizer.vocab_size,
        "add_bos_token": tokenizer.adds_bos,
        "chat_template": engine.template.template,
    }


def _with_piece(tokenizer: Any, id: int) -> dict[str, Any]:
    piece = tokenizer.token_bytes(id) or tokenizer.token_text(id).encode()
    try:
        return {"id": id, "piece": piece.decode()}
    except UnicodeDecodeError:
        return {"id": id, "piece": list(piece)}

"""What the server says of itself."""

from __future__ import annotations

from servers import Running, error_of


def test_health_is_ok_with_and_without_a_version_and_a_body(server: Running) -> None:
    for path in ("/health", "/v1/health"):
        assert server.client.get(path).json() == {"status": "ok"}
        head = server.client.head(path)
        assert (head.status_code, head.text) == (200, "")


def test_the_one_model_is_listed_and_described(server: Running) -> None:
    [model] = server.client.get("/v1/models").json()["data"]
    assert model["object"] == "model"
    assert server.client.get("/models").json()["data"] == [model]
    assert server.client.get(f"/v1/models/{model['id']}").json() == model
    response = server.client.get("/v1/models/other/model")
    assert response.status_code == 404
    assert error_of(response)["code"] == "model_not_found"


def test_metrics_count_tokens_under_our_names_and_those_of_llama_cpp(server: Running) -> None:
    def counts() -> dict[str, float]:
        lines = server.client.get("/metrics").text.splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    before = counts()
    body = server.chat("Count me").json()
    after = counts()
    assert after["inferno_generated_tokens_total"] - before["inferno_generated_tokens_total"] == 8
    for name in ("llamacpp:tokens_predicted_total", "inferno_generated_tokens_total"):
        assert after[name] - before[name] == body["usage"]["completion_tokens"]
    processed = body["usage"]["prompt_tokens"] - body["inferno"]["cached_tokens"]
    name = "llamacpp:prompt_tokens_total"
    assert after[name] - before[name] == processed
    assert after["inferno_kv_cache_bytes"] <= after["inferno_kv_cache_capacity_bytes"]
    assert after["inferno_texts_running"] == after["inferno_texts_waiting"] == 0


def test_props_say_what_is_served(server: Running) -> None:
    body = server.client.get("/props").json()
    assert body["default_generation_settings"]["n_ctx"] == server.engine.context
    assert body["chat_template"] == server.engine.template.template
    assert body["memory"]["weights"] == server.engine.memory.weights


def test_slots_are_not_there_and_that_is_said(server: Running) -> None:
    response = server.client.get("/slots")
    assert response.status_code == 501
    assert error_of(response)["type"] == "not_supported_error"

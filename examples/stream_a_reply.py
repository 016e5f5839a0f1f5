"""Stream a reply, and say what it took."""

import inferno

engine = inferno.Engine.load("smollm2-135m-instruct")
reply = engine.chat("Why is the sky blue?", max_tokens=100)
for piece in reply:
    print(piece, end="", flush=True)
print(f"\n{reply.stats.generated_tokens} tokens in {reply.stats.decode_seconds:.1f} s")

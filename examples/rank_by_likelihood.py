"""Rank sentences by how likely the model finds them."""

import inferno

engine = inferno.Engine.load("smollm2-135m-instruct")
sentences = ("The cat sat on the mat.", "The mat sat on the cat.", "Mat the on sat cat the.")
for sentence in sorted(sentences, key=lambda text: engine.score(text).perplexity):
    print(f"{engine.score(sentence).perplexity:8.1f}  {sentence}")

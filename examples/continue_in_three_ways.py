"""Process a prompt once and continue it in three ways: forks share its cache."""

import inferno

engine = inferno.Engine.load("smollm2-135m-instruct")
session = engine.new_session()
session.feed("The best thing about the sea is")
for seed in (1, 2, 3):
    print(f"{seed}:", session.fork().generate(seed=seed, max_tokens=20))

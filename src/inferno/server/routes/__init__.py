"""One module an endpoint, or a few of a kind: each has a `router`. `app` lists them."""

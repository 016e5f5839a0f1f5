"""The engine over HTTP: OpenAI's interface, and what local clients ask besides.

`app.create_app` makes the application, `listener.serve` runs it. Everything here speaks HTTP and
JSON, and hands requests to the scheduler; nothing here knows tensors.
"""

"""Every error a user of inferno can meet, under one root.

    InfernoError
    ├── ModelNotFound      LookupError    no such file, directory, catalogue name or repository
    ├── DownloadFailed     OSError        network or disk gave up; nothing half-written is used
    ├── AccessDenied       PermissionError  a hub wants a licence accepted, or a token
    ├── InvalidCheckpoint  ValueError     a file is cut, corrupt, hostile, or contradicts itself
    ├── UnsupportedModel   NotImplementedError  a sound checkpoint that this version cannot run
    ├── InvalidOption      ValueError     an option is unknown, out of range, or not supported
    ├── InvalidText        ValueError     bytes that are not UTF-8, lone surrogates
    ├── TemplateError      ValueError     the model's chat template refused the messages
    ├── ContextFull        OverflowError  the tokens do not fit in the context
    ├── OutOfMemory        MemoryError    the model or its cache would not fit
    ├── Busy               RuntimeError   too many requests are waiting, or the engine is closing
    └── NativeError        RuntimeError   the native core broke one of its own promises

The first line of a message names the thing, what was expected, and what was found. `hint`, if any,
says what to do about it and is printed on a line of its own. `code` is stable; messages may change.
"""

from __future__ import annotations


class InfernoError(Exception):
    """Root of all errors raised on purpose. `code` is stable, `hint` says what to do."""

    code = "inferno-error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class ModelNotFound(InfernoError, LookupError):
    code = "model-not-found"


class DownloadFailed(InfernoError, OSError):
    code = "download-failed"


class AccessDenied(InfernoError, PermissionError):
    code = "access-denied"


class InvalidCheckpoint(InfernoError, ValueError):
    code = "invalid-checkpoint"


class UnsupportedModel(InfernoError, NotImplementedError):
    code = "unsupported-model"


class InvalidOption(InfernoError, ValueError):
    code = "invalid-option"


class InvalidText(InfernoError, ValueError):
    code = "invalid-text"


class TemplateError(InfernoError, ValueError):
    code = "template-error"


class ContextFull(InfernoError, OverflowError):
    code = "context-full"


class OutOfMemory(InfernoError, MemoryError):
    code = "out-of-memory"


class Busy(InfernoError, RuntimeError):
    code = "busy"


class NativeError(InfernoError, RuntimeError):
    code = "native-error"

"""Every error a user of inferno can meet, under one root.

Each is one of Python's own kinds besides, so that `except ValueError` catches it too.

The first line of a message names the thing, what was expected, and what was found. `hint`, if any,
says what to do about it and is printed on a line of its own. `code` is stable; messages may change.
"""

from __future__ import annotations


class InfernoError(Exception):
    """Root of all errors raised on purpose.

    Attributes:
        code: a name of the kind, in kebab-case; it is stable.
        message: what is wrong. The first line names the thing, what was expected and what was
            found; it may change.
        hint: what to do about it, or None.
    """

    code = "inferno-error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class ModelNotFound(InfernoError, LookupError):
    """There is no such file, directory, catalogue name or repository."""

    code = "model-not-found"


class DownloadFailed(InfernoError, OSError):
    """The network or the disk gave up while fetching; nothing half-written is used."""

    code = "download-failed"


class AccessDenied(InfernoError, PermissionError):
    """A hub wants a licence accepted, or a token."""

    code = "access-denied"


class InvalidCheckpoint(InfernoError, ValueError):
    """A file is cut, corrupt or hostile, or contradicts itself."""

    code = "invalid-checkpoint"


class UnsupportedModel(InfernoError, NotImplementedError):
    """The checkpoint is sound, but this version cannot run it."""

    code = "unsupported-model"


class InvalidOption(InfernoError, ValueError):
    """An option is unknown, out of range, or not supported."""

    code = "invalid-option"


class InvalidText(InfernoError, ValueError):
    """Bytes that are not UTF-8, a lone surrogate, or no text where some is needed."""

    code = "invalid-text"


class TemplateError(InfernoError, ValueError):
    """The model's chat template refused the messages."""

    code = "template-error"


class ContextFull(InfernoError, OverflowError):
    """The tokens do not fit in the context."""

    code = "context-full"


class OutOfMemory(InfernoError, MemoryError):
    """The model, or its cache, would not fit in memory."""

    code = "out-of-memory"


class Busy(InfernoError, RuntimeError):
    """Too many requests are waiting, or the engine is closing."""

    code = "busy"


class NativeError(InfernoError, RuntimeError):
    """The native core broke one of its own promises: a mistake in inferno."""

    code = "native-error"

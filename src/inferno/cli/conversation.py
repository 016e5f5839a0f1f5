"""The turns of one chat, and the session that keeps them in the cache. Prints nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from inferno.draft import settled

if TYPE_CHECKING:
    from inferno import Engine, Generation


class Conversation:
    """Turns that took place, with the system message before them. A turn counts once it is kept."""

    def __init__(
        self,
        engine: Engine,
        *,
        system: str | None = None,
        sampling: Mapping[str, Any] | None = None,
    ) -> None:
        self.system = system
        self.turns: list[dict[str, str]] = []
        self._engine = engine
        self._sampling = dict(sampling or {})
        self._session = engine.new_session()

    @property
    def messages(self) -> list[dict[str, str]]:
        """The system message, if any, and the turns so far."""
        system = [{"role": "system", "content": self.system}] if self.system is not None else []
        return [*system, *self.turns]

    @property
    def used_tokens(self) -> int:
        """Tokens in the cache."""
        return len(self._session)

    def reply_to(self, text: str) -> Generation:
        """Start the reply to `text`. Raises ContextFull, TemplateError, InvalidText."""
        messages = [*self.messages, {"role": "user", "content": text}]
        return self._engine.chat(messages, session=self._session, **self._sampling)

    def read_ahead(self, draft: str) -> Generation | None:
        """Start to process `draft`, the beginning of what may be said next, for `reply_to` to find.

        Raises what `reply_to` raises. None if there is nothing of which it is sure to be a part.
        """
        messages = [*self.messages, {"role": "user", "content": draft}]
        ids = self._engine.encode_chat(
            messages, add_generation_prompt=False, continue_final_message=True
        )
        stays = settled(ids, messages)
        if not stays:
            return None
        return self._engine.generate(stays, max_tokens=0, speculation="off")

    def keep(self, text: str, reply: str) -> None:
        """Make `text` and its `reply`, whole or stopped halfway, part of the conversation."""
        self.turns += [{"role": "user", "content": text}, {"role": "assistant", "content": reply}]

    def clear(self) -> None:
        """Forget the turns; the system message stays."""
        self.turns = []
        self.renew_session()

    def renew_session(self) -> None:
        """Drop the cache, for when an interrupt may have left it half-way."""
        self._session = self._engine.new_session()

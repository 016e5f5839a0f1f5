"""Guesses of what comes next, taken from the text so far, and how many of them pay.

Knows ids and costs; no model, no text, no clock. Guesses are verified by the very pass that would
have computed one token, so they change how fast a text comes and never what it says
(docs/design/speculation.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from inferno.options import MAX_GUESSES

# A match of one token proposes something after every "the"; one of five is seldom there where one
# of four is not.
LONGEST_NGRAM, SHORTEST_NGRAM = 4, 2

WINDOW = 10  # attempts that acceptance is estimated from
FIRST_PAUSE, LONGEST_PAUSE = 5, 80  # passes without guesses; each pause in a row is twice as long

# A guess more that costs 0.3 of a pass pays from 30 % acceptance on: what to think of a machine
# until it has been seen at work.
ASSUMED_COST_OF_A_ROW = 0.3
RECENT_PASSES = 8
# What was not run for so long is as if it had never been measured, and found out anew: else a pass
# that was slow once, for what else the machine did, would never be tried again. One attempt in so
# many passes costs less than 2 %, as it is seldom more than 4 passes over one row.
FORGOTTEN_AFTER = 256
LONGEST_MATCH = 32  # beyond that, a match need not be measured
_MAX_ROWS = 1 + MAX_GUESSES


class NgramIndex:
    """Where each run of 2 to 4 ids was last seen: O(1) to look up, to add an id, to cut one off.

    Reads `ids`, which the caller changes: `cut` before ids are removed, `fit` when some came.
    """

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = ids
        self._length = 0  # runs that end before here are known
        sizes = range(LONGEST_NGRAM, SHORTEST_NGRAM - 1, -1)
        # By size: a run -> where its last occurrence ends; and, for each end, where the same run
        # ended before (0: nowhere), so that cutting back finds the older one again.
        self._last: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in sizes}
        self._before: dict[int, list[int]] = {n: [] for n in sizes}

    def fit(self, length: int) -> None:
        """Know the runs that end at or before `length`, and no others."""
        if length < self._length:
            self.cut(length)
            return
        ids = self._ids
        for n, last in self._last.items():
            before = self._before[n]
            for end in range(self._length + 1, length + 1):
                if end < n:
                    before.append(0)
                    continue
                run = tuple(ids[end - n : end])
                before.append(last.get(run, 0))
                last[run] = end
        self._length = length

    def cut(self, length: int) -> None:
        """Forget the runs that end after `length`."""
        for n, last in self._last.items():
            before = self._before[n]
            for end in range(self._length, max(length, n - 1), -1):
                run = tuple(self._ids[end - n : end])
                if earlier := before[end - 1]:
                    last[run] = earlier
                else:
                    del last[run]
            del before[length:]
        self._length = min(self._length, length)

    def find(self, recent: Sequence[int], after: int | None = None) -> int | None:
        """Return where the longest run that `recent` ends with was last seen to end.

        With `after`, the first of its ends after that, if there is one.
        """
        for n, last in self._last.items():
            end = last.get(tuple(recent[-n:]))
            if end is None:
                continue
            while after is not None and (earlier := self._before[n][end - 1]) > after:
                end = earlier
            return end
        return None


class PassCosts:
    """What a pass over some rows costs, in passes over one row.

    Learnt from the passes that are run, for it changes with the length of the text; assumed until
    there were some.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, tuple[float, ...]] = {}  # by rows, of the last passes
        self._last: dict[int, int] = {}  # by rows, which pass was the last
        self._passes = 0
        self._table: list[float] | None = None

    def observe(self, rows: int, seconds: float) -> None:
        """Take note of a pass over `rows` rows."""
        # Values are replaced, never changed: engines are shared by threads.
        recent = self._seconds.get(rows, ())[-(RECENT_PASSES - 1) :]
        self._seconds[rows] = (*recent, seconds)
        self._passes += 1
        self._last[rows] = self._passes
        self._table = None

    def table(self) -> Sequence[float]:
        """Return the cost of a pass over n rows at index n, up to 1 + MAX_GUESSES rows."""
        table = self._table
        if table is None:
            table = self._table = self._estimated()
        return table

    def _estimated(self) -> list[float]:
        # Whatever else the machine does makes a pass slower, never faster: the fastest counts.
        seen = {n: min(seconds) for n, seconds in list(self._seconds.items()) if n <= _MAX_ROWS}
        one = seen.pop(1, 0.0)
        fresh = self._passes - FORGOTTEN_AFTER
        seen = {n: seconds for n, seconds in seen.items() if self._last.get(n, 0) > fresh}
        if not seen or one <= 0.0:
            return [1.0 + ASSUMED_COST_OF_A_ROW * (n - 1) for n in range(_MAX_ROWS + 1)]
        costs, low, cost = [0.0, 1.0], 1, 1.0
        for high, seconds in sorted(seen.items()):
            # More rows are never cheaper, but for noise.
            step = (max(cost, seconds / one) - cost) / (high - low)
            costs.extend(cost + step * (n - low) for n in range(low + 1, high + 1))
            low, cost = high, costs[-1]
        step = (cost - 1.0) / (low - 1)
        costs.extend(cost + step * (n - low) for n in range(low + 1, _MAX_ROWS + 1))
        return costs


class Gate:
    """Decides how many guesses a pass should verify, so that it keeps the most for what it costs.

    A match that has held for m tokens is expected to hold for the next with chance 1 - 1/m, and so
    on (measured: docs/design/speculation.md), unless lately guesses were refused more often: then
    the chance of a refusal is larger in proportion. If that leaves nothing that pays there is a
    pause, after which an attempt is made as if nothing had happened; it decides whether to go on.
    """

    def __init__(self, costs: PassCosts) -> None:
        self._costs = costs
        # Of each attempt: refusals (0 or 1), and how many were to be expected.
        self._attempts: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._pause = FIRST_PAUSE
        self._paused = 0  # passes until doubts are put aside
        self._is_trial = False
        self._matched = 1

    def guesses(self, matched: int) -> int:
        """Return how many guesses to verify after a match of so many tokens: 0 to MAX_GUESSES."""
        self._matched = matched
        if self._paused:
            self._paused -= 1
            self._is_trial = self._paused == 0
        count = self._best(matched, 1.0 if self._is_trial else self._doubt())
        if count == 0 and not self._paused and not self._is_trial:
            self._close()
        return count

    def record(self, drafted: int, accepted: int) -> None:
        """Take note of how that attempt went: of `drafted` guesses the first `accepted` held."""
        refused = int(accepted < drafted)
        expected = sum(1 / (self._matched + i) for i in range(accepted + refused))
        if self._is_trial:
            self._is_trial = False
            if refused and accepted == 0:
                self._close()
            else:
                self._attempts.clear()
                self._pause = FIRST_PAUSE
        self._attempts.append((refused, expected))

    def _close(self) -> None:
        self._paused = self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _doubt(self) -> float:
        refused = 1 + sum(refused for refused, _ in self._attempts)
        expected = 1 + sum(expected for _, expected in self._attempts)
        return refused / expected

    def _best(self, matched: int, doubt: float) -> int:
        costs = self._costs.table()
        kept, chance, best, count = 1.0, 1.0, 1.0, 0
        for guesses in range(1, MAX_GUESSES + 1):
            chance *= max(0.0, 1.0 - doubt / (matched + guesses - 1))
            kept += chance
            rate = kept / costs[1 + guesses]
            if rate > best:
                best, count = rate, guesses
        return count


class Drafter:
    """Makes the guesses of one generation: from its prediction, else from the text so far.

    `count` fixes how many; None leaves it to the gate.
    """

    def __init__(
        self, costs: PassCosts, prediction: Sequence[int] = (), count: int | None = None
    ) -> None:
        self._gate = self._asked = Gate(costs)  # `_asked`: about the last guesses
        self._forced_gate = Gate(costs)
        self._count = count
        self._prediction = prediction
        self._predicted = NgramIndex(prediction)
        self._predicted.fit(len(prediction))
        # What the prediction says next, and how many tokens it has been right about: at first it
        # is trusted like the longest run.
        self._next, self._matched = 0, LONGEST_NGRAM

    def draft(self, ids: Sequence[int], index: NgramIndex, limit: int) -> list[int]:
        """Return guesses of what follows `ids`, `limit` at most; `index` is that of `ids`."""
        if limit <= 0 or not ids:
            return []
        self._asked = self._gate
        if self._prediction and self._find_in_prediction(ids):
            count = min(self._guesses(self._matched), limit)
            return list(self._prediction[self._next : self._next + count])
        index.fit(len(ids) - 1)  # the run at the very end is what is looked for
        start = index.find(ids)
        if start is None:
            return []
        matched = agreement(ids, ids, start)
        return continuation(ids, start, min(self._guesses(matched), limit))

    def draft_forced(self, forced: Sequence[int], limit: int) -> list[int]:
        """Return so many of the `forced` tokens as pay, `limit` at most.

        The text of them is certain; other tokens may spell it.
        """
        self._asked = self._forced_gate
        return list(forced[: max(0, min(self._guesses(LONGEST_MATCH), limit))])

    def take(self, id: int) -> None:
        """Follow the text by the token that came."""
        if self._matched:
            is_right = self._next < len(self._prediction) and self._prediction[self._next] == id
            self._matched = self._matched + 1 if is_right else 0
            self._next += is_right

    def record(self, drafted: int, accepted: int) -> None:
        """Take note of how many of the last guesses held."""
        self._asked.record(drafted, accepted)

    def _guesses(self, matched: int) -> int:
        return self._asked.guesses(matched) if self._count is None else self._count

    def _find_in_prediction(self, ids: Sequence[int]) -> bool:
        """Tell whether the prediction says anything next, looking for the place if it is lost."""
        if not self._matched:
            start = self._predicted.find(ids, after=self._next)
            if start is not None:
                self._next, self._matched = start, agreement(self._prediction, ids, start)
        return bool(self._matched) and self._next < len(self._prediction)


def agreement(source: Sequence[int], ids: Sequence[int], end: int) -> int:
    """Return how many ids before `end` in `source` are those that `ids` end with."""
    length = 0
    while length < min(LONGEST_MATCH, end) and source[end - 1 - length] == ids[-1 - length]:
        length += 1
    return length


def continuation(ids: Sequence[int], start: int, count: int) -> list[int]:
    """Return `count` ids as they follow from `start`, before the end; then they come again."""
    found = list(ids[start : start + count])
    period = len(ids) - start
    while len(found) < count:
        found.append(found[len(found) - period])
    return found

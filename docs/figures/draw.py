"""Draw the figures of the documentation: `python docs/figures/draw.py` writes them beside itself.

They are drawn for light pages and for dark ones: an image takes over its page's colour scheme. The
words are text, so they can be searched for and read aloud.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent

STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2328 }
.mono { font-family: ui-monospace, monospace; font-size: 13px }
.small { font-size: 12px }
.quiet { fill: #59636e }
.strong { font-weight: 600 }
.middle { text-anchor: middle }
.end { text-anchor: end }
.box { fill: #f6f8fa; stroke: #b4bcc5 }
.hot { fill: #ffe8d9; stroke: #d9480f }
.cold { fill: #deebfb; stroke: #3d7bc9 }
.good { fill: #dcf3e2; stroke: #2f8f4e }
.none { fill: none; stroke: #b4bcc5; stroke-dasharray: 4 3 }
.line { fill: none; stroke: #59636e; stroke-width: 1.5 }
.head { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e8eb }
  .quiet { fill: #a3abb5 }
  .box { fill: #2a2f38; stroke: #5b6470 }
  .hot { fill: #4d2a16; stroke: #ff9a5c }
  .cold { fill: #1d3350; stroke: #6aa8f0 }
  .good { fill: #1b3b26; stroke: #58c07a }
  .none { stroke: #5b6470 }
  .line { stroke: #a3abb5 }
  .head { fill: #a3abb5 }
}
""".strip()


class Drawing:
    """Shapes in the order in which they are drawn; units are pixels at full size."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{STYLE}\n</style>",
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker>',
        ]

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        self._parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(text)}</text>')

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        text: str = "",
        kind: str = "box",
        font: str = "",
    ) -> None:
        """A rectangle with a line of text in its middle."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" '
            f'class="{kind}"/>'
        )
        if text:
            self.text(x + width / 2, y + height / 2 + 5, text, f"middle {font}".strip())

    def line(self, *points: tuple[float, float], has_head: bool = True) -> None:
        """A line through points, with an arrowhead at its end."""
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        head = ' marker-end="url(#head)"' if has_head else ""
        self._parts.append(f'<path class="line" d="{path}"{head}/>')

    def __str__(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


def walk_of_a_prompt() -> Drawing:
    """Top to bottom: what each room hands to the next; to the right, the loop."""
    d = Drawing(720, 560, "A message becomes ids, rows of floats, a token, and text again")
    rows = [
        ("messages", "cli, server", "box"),
        ("the prompt, as text", "chat", "box"),
        ("token ids", "tokenizer", "box"),
        ("ids that are not cached yet", "session, prefix_cache", "cold"),
        ("a pass over their rows", "executor, kernels", "hot"),
        ("logits: a float for each token that there is", "", "hot"),
        ("one id", "sampler", "hot"),
        ("pieces of text", "text_stream", "box"),
    ]
    for number, (what, room, kind) in enumerate(rows):
        y = 16 + 68 * number
        d.box(190, y, 330, 40, what, kind)
        d.text(172, y + 25, room, "mono quiet end")
        if number:
            d.line((355, y - 28), (355, y - 2))
    # The loop: the id is a row of the next pass.
    d.line((520, 444), (580, 444), (580, 308), (523, 308))
    d.text(592, 362, "until the text ends:", "small quiet")
    d.text(592, 380, "the new id is the", "small quiet")
    d.text(592, 398, "row of the next pass", "small quiet")
    return d


def one_sum() -> Drawing:
    """A product of a matrix and a row: outputs are divided among threads, sums are not."""
    d = Drawing(720, 330, "Threads divide the outputs; each output is one sum, in one order")
    d.text(60, 22, "the weights: a row for each output, in blocks of 32 columns", "quiet")
    names = ["block 0", "block 1", "block 2", "…", "last block"]
    for row in range(4):
        kind = "cold" if row < 2 else "good"
        y = 40 + 52 * row
        d.text(16, y + 25, f"row {row}", "small quiet")
        for column, name in enumerate(names):
            d.box(60 + 88 * column, y, 80, 36, name, kind, "small")
            if column:
                d.line((60 + 88 * column - 9, y + 18), (60 + 88 * column, y + 18))
        d.line((60 + 88 * 5 - 8, y + 18), (540, y + 18))
        d.text(548, y + 23, f"output {row}")
    d.text(632, 88, "thread 0", "strong")
    d.text(632, 192, "thread 1", "strong")
    d.text(60, 272, "A sum goes from left to right, block by block, one rounding a step.", "")
    d.text(60, 294, "Another number of threads moves the colours; it does not cut an arrow.", "")
    d.text(60, 316, "Another token in the same pass has sums of its own beside these.", "")
    return d


def prefix_tree() -> Drawing:
    """Pages of 64 positions, shared by the conversations that begin alike."""
    d = Drawing(720, 300, "Conversations that begin alike share the pages of their beginning")

    def pages(x: float, y: float, texts: list[str], kinds: list[str]) -> float:
        for text, kind in zip(texts, kinds, strict=True):
            d.box(x, y, 92, 40, text, kind, "small")
            x += 100
        return x - 8

    end = pages(20, 130, ["system 0–63", "64–127"], ["good", "good"])
    d.text(20, 192, "held by everyone:", "small quiet")
    d.text(20, 210, "in memory once", "small quiet")
    for y, name, texts, kinds in (
        (30, "conversation A", ["128–191", "192–255", "256–290"], ["cold", "cold", "cold"]),
        (130, "a fork of A", ["256–270"], ["hot"]),
        (230, "conversation B", ["128–191", "192–203"], ["box", "box"]),
    ):
        if name == "a fork of A":
            d.line((478, 70), (478, 150), (528, 150))
            pages(530, y, texts, kinds)
            d.text(632, y + 25, name, "small")
            d.text(530, y + 62, "its last page was copied", "small quiet")
            d.text(530, y + 80, "when it wrote there", "small quiet")
        else:
            d.line((end, 150), (end + 28, 150), (end + 28, y + 20), (end + 60, y + 20))
            stop = pages(end + 62, y, texts, kinds)
            d.text(stop + 12, y + 25, name, "small")
    return d


def guesses() -> Drawing:
    """A pass over the last token and four guesses, of which three hold."""
    d = Drawing(720, 262, "One pass verifies guesses; those up to the first wrong one are kept")
    d.text(20, 24, "the text so far", "quiet")
    x = 20.0
    for word, kind in (
        ("for", "cold"), ("i", "cold"), ("in", "cold"), ("range", "box"), ("(", "box"),
        ("n", "box"), (")", "box"), (":", "box"), ("…", "box"), ("for", "cold"), ("i", "cold"),
        ("in", "cold"),
    ):  # fmt: skip
        d.box(x, 36, 50, 32, word, kind, "mono")
        x += 56
    said = "its end was there before; what followed then is guessed to follow again"
    d.text(20, 92, said, "small quiet")
    d.text(20, 134, "one pass", "quiet")
    for number, (word, kind) in enumerate(
        (("in", "cold"), ("range", "good"), ("(", "good"), ("n", "hot"), (")", "none"))
    ):
        d.box(110 + 110 * number, 114, 90, 32, word, kind, "mono")
    d.text(20, 194, "it says", "quiet")
    for number, word in enumerate(("range", "(", "len")):
        d.line((155 + 110 * number, 148), (155 + 110 * number, 170))
        d.box(110 + 110 * number, 174, 90, 32, word, "good", "mono")
    d.text(440, 194, "the first wrong guess ends it;", "small quiet")
    d.text(440, 210, "the right token is known all the same", "small quiet")
    d.text(20, 244, "Three tokens for the price of one pass over five rows.", "")
    return d


def type_ahead() -> Drawing:
    """Two lines of time: reading after Enter, and while typing."""
    d = Drawing(720, 236, "With type-ahead most of the message has been read when Enter is pressed")
    enter = 430
    d.text(20, 24, "you type", "quiet")
    d.box(110, 8, enter - 110, 24, "What does this function do? def …", "box", "small")
    d.line((enter, 4), (enter, 220), has_head=False)
    d.text(enter + 8, 24, "Enter", "strong")
    d.text(20, 84, "without", "quiet")
    d.box(enter, 66, 130, 28, "read it all", "cold", "small")
    d.box(enter + 130, 66, 150, 28, "the reply", "good", "small")
    d.text(20, 152, "with", "quiet")
    x = 190.0
    for width, pause in ((42, 28), (36, 34), (40, 24), (28, 0)):
        d.box(x, 134, width, 28, "", "cold")
        x += width + pause
    d.box(enter, 134, 12, 28, "", "cold")
    d.box(enter + 12, 134, 150, 28, "the reply", "good", "small")
    d.text(enter - 10, 184, "at each pause the draft is read,", "small quiet end")
    d.text(enter - 10, 202, "of which most was read before", "small quiet end")
    d.text(enter + 10, 184, "what is new, and the end of the turn", "small quiet")
    return d


FIGURES = (walk_of_a_prompt, one_sum, prefix_tree, guesses, type_ahead)


def main() -> None:
    for figure in FIGURES:
        name = figure.__name__.replace("_", "-")
        (FOLDER / f"{name}.svg").write_text(str(figure()), "utf-8")


if __name__ == "__main__":
    main()

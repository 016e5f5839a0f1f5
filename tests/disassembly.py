"""Reads what a disassembler says of an object: functions, loops, and what these do to the stack.

Knows the Intel syntax of x86; of Arm, its jumps.
"""

from __future__ import annotations

import heapq
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

OBJDUMP = shutil.which("objdump") or shutil.which("llvm-objdump")
ARM_OBJDUMP = shutil.which("aarch64-linux-gnu-objdump")

_HEAD = re.compile(r"^[0-9a-f]+ <(?P<name>.*)>:$")
_LINE = re.compile(
    r"^\s*(?P<address>[0-9a-f]+):\s+(?:\{\w+\}\s+)?(?P<name>\S+)\s*(?P<operands>.*?)\s*$"
)
_MEMORY = re.compile(r"\[[^\]]*\]")
_JUMP = re.compile(r"j|b(\.|$)|[ct]bn?z$")
_TARGET = re.compile(r"(?:^|,)(?:0x)?([0-9a-f]+)(?: <|$)")
_VECTOR = re.compile(r"\b[xyz]mm\d+\b")


@dataclass(frozen=True)
class Instruction:
    address: int
    name: str
    operands: str

    @property
    def target(self) -> int | None:
        """The address a jump leads to."""
        match = _TARGET.search(self.operands)
        return int(match[1], 16) if _JUMP.match(self.name) and match else None

    def stack_slot(self, frame: str) -> str | None:
        """The place on the stack that a vector instruction touches; `frame` matches its bases."""
        memory = _MEMORY.search(self.operands)
        if not (memory and re.search(frame, memory[0]) and _VECTOR.search(self.operands)):
            return None
        return memory[0]

    @property
    def writes_memory(self) -> bool:
        return "[" in self.operands.split(",")[0]


@dataclass(frozen=True)
class Function:
    name: str
    instructions: tuple[Instruction, ...]

    def loops(self) -> list[tuple[Instruction, ...]]:
        """List the loops, innermost first: what lies between a jump back and where it leads."""
        spans = {
            (target, jump.address)
            for jump in self.instructions
            if (target := jump.target) is not None and target <= jump.address
        }
        return [
            tuple(i for i in self.instructions if first <= i.address <= last)
            for first, last in sorted(spans, key=lambda span: span[1] - span[0])
        ]

    def shortest_round(
        self,
        through: list[tuple[tuple[Instruction, ...], int]],
        weigh: Callable[[Instruction], int],
    ) -> int:
        """Weigh the shortest way round through each of these loops, so many times in each.

        Compilers lay out blocks in any order; a loop around others need not span them.
        """
        place = {instruction.address: i for i, instruction in enumerate(self.instructions)}
        inside = {place[i.address]: n for n, (loop, _) in enumerate(through) for i in loop}
        cost = [times * sum(map(weigh, loop)) for loop, times in through]
        after = [place[loop[-1].address] + 1 for loop, _ in through]
        best: dict[tuple[int, frozenset[int]], int] = {}
        waiting = [(cost[0], after[0], frozenset([0]))]
        while waiting:
            weight, at, done = heapq.heappop(waiting)
            instruction = self.instructions[at]
            following = []
            if instruction.target in place:
                following.append(place[instruction.target])
            if instruction.name not in ("b", "jmp", "ret"):
                following.append(at + 1)
            for to in following:
                ahead, passed = weight + weigh(instruction), done
                if (loop := inside.get(to)) is not None:  # it may be entered at its condition
                    if loop == 0 and len(done) == len(through):
                        return ahead
                    if loop in done:
                        continue
                    ahead, to, passed = ahead + cost[loop], after[loop], done | {loop}
                if ahead < best.get((to, passed), sys.maxsize):
                    best[to, passed] = ahead
                    heapq.heappush(waiting, (ahead, to, passed))
        raise AssertionError(f"no way round through the loops of {self.name}")

    def stack_traffic(self, loop: tuple[Instruction, ...]) -> tuple[Counter[str], Counter[str]]:
        """Count how often a pass of `loop` (stores, loads) vectors in each place of the stack."""
        # rbp is the frame where the function says so; elsewhere it is a register like others.
        frames = any(i.name == "mov" and i.operands == "rbp,rsp" for i in self.instructions)
        frame = r"\b(rsp|rbp)\b" if frames else r"\brsp\b"
        stores: Counter[str] = Counter()
        loads: Counter[str] = Counter()
        for instruction in loop:
            slot = instruction.stack_slot(frame)
            if slot is not None:
                (stores if instruction.writes_memory else loads)[slot] += 1
        return stores, loads


def functions(listing: str) -> Iterator[Function]:
    """Split a listing into its functions."""
    name, found = "", list[Instruction]()
    for line in [*listing.splitlines(), "0 <>:"]:
        if head := _HEAD.match(line):
            if name:
                yield Function(name, tuple(found))
            name, found = head["name"], []
        elif match := _LINE.match(line):
            operands = re.sub(r"\s*[#;].*", "", match["operands"]).replace(", ", ",")
            found.append(Instruction(int(match["address"], 16), match["name"], operands))


def disassemble(path: Path, arm: bool = False) -> list[Function]:
    """Disassemble an object file of x86 or Arm."""
    command = ([ARM_OBJDUMP] if arm else [OBJDUMP, "-M", "intel"]) + ["-d", "-C"]
    command += ["--no-show-raw-insn", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(functions(text))

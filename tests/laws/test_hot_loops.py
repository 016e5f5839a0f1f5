"""The loops that the time goes into, as the compiler left them: no spills, no instruction too many.

Attention over a page has two: scores and sums of values, for each type of cache and number of rows.

A register tile of R row tiles and T tokens keeps R T accumulators of 16 lanes in memory on purpose
(body/matmul.inl.h), each loaded and stored once a block; a compiler with registers to spare keeps
some there. That is all the traffic with the stack that a block may have, and an inner loop none. A
spill changes no bit of any answer: only the disassembly shows it.

Blocks of 256 columns prefetch in their loop over 32 columns, which is the one looked at; scales of
sub-blocks are an array on the stack, which that loop indexes. Taken apart for many tokens, they are
in the nearest cache and prefetch nothing.
"""

from __future__ import annotations

import functools
import platform
import re
from pathlib import Path
from typing import Any

import pytest

from disassembly import ARM_OBJDUMP, OBJDUMP, Function, Instruction, disassemble, functions
from inferno import _native

ROOT = Path(__file__).parents[2]
BITS = {"avx2": 256, "avx_vnni": 256, "avx512_vnni": 512}  # of a vector register
LANES = 16  # of a virtual register

# Per vector register of rows, 32 columns of Q4_0 and one token: eight dot products; if they have 16
# bits, seven additions, a multiply-add to 32 bits and the bias, a start value elsewhere; then the
# conversion to float, the product of the scales, and the fused multiply-add.
STEP = {"avx2": 8 + 7 + 1 + 1 + 3, "avx_vnni": 8 + 3, "avx512_vnni": 8 + 3}
BROADCASTS = 10  # a token and block: eight groups of four activations, scale, bias
UNPACKING = 17  # a register of rows and block: four loads, eight ands, four shifts, the scale
LOOP = 5  # a block: two pointers, the counter, compare and jump
# The odd copy of a register: compilers allocate them one by one.
ALLOWANCE = 2.0

# Where 16 bits hold fewer than 32 columns of codes, sums are widened so many times in 32 columns,
# and wait on the stack (quant/codes.h, quant/super_blocks.h). With AVX-VNNI the sums have 32 bits:
# those of four tokens and their totals are 16 registers, and totals wait there at each sub-block.
RUNS = {
    "avx2": {"Q5_0": 2, "Q5_1": 2, "MXFP4": 2, "Q2_K": 2, "Q3_K": 2, "Q5_K": 2, "Q6_K": 4},
    "avx_vnni": {"Q2_K": 2, "Q3_K": 2, "Q6_K": 2},
    "avx512_vnni": {"Q2_K": 2, "Q3_K": 2, "Q6_K": 2},
}
# With AVX-512 totals of so many tokens stay in registers beside the sums (kPartTokens); of more
# they wait at each sub-block.
NONE_WAIT_UP_TO = {"avx512_vnni": 8}
# Sixteen registers are few for eight sums, two or four weights, a broadcast and what unpacks codes
# of more than a nibble: masks and tables may be operands from the stack, at no instruction's cost,
# and a few registers may be set aside.
UNPACKED = {
    "avx2": {*RUNS["avx2"], "Q4_K", "IQ4_NL", "IQ4_XS"},
    "avx_vnni": {*RUNS["avx2"], "Q4_K", "IQ4_NL", "IQ4_XS"},
    "avx512_vnni": {"MXFP4"},  # its exponents: beside sixteen sums, a mask and a table
}
MOST_CONSTANTS, MOST_SET_ASIDE = 4, {"avx2": 6, "avx_vnni": 16, "avx512_vnni": 0}

# At most so many of a prefill tile of Q4_0 and Q4_K for 256 multiply-adds, whatever they are
# (docs/design/instruction-sets.md has what they are); of Q4_K, of blocks taken apart.
MOST = {
    "avx2": {"Q4_0": 37, "Q4_K": 37},
    "avx_vnni": {"Q4_0": 23, "Q4_K": 23},
    "avx512_vnni": {"Q4_0": 10, "Q4_K": 13},
    "neon_dotprod": {"Q4_0": 32, "Q4_K": 30},
    "neon_i8mm": {"Q4_0": 29, "Q4_K": 26},
}
ARM_TOKENS = 16  # of a register tile

MULTIPLIES = re.compile(r"vp(maddubsw|maddwd|dpbusd)|vfmadd|sdot|smmla")
PREFETCHES = re.compile(r"prefetch|prfm")
# Keys and values of floats, and values of int8; its keys are a matrix's tile.
ATTENTION = re.compile(r"(score_rows|add_values|attention)<inferno::\w+, ")
SCORES = re.compile(r"score_tile<inferno::\w+, (?P<tokens>\d+), (?P<tiles>\d+)>\(")
# `part`: which of the parts of the tokens that stand side by side is multiplied, -1 for all.
PART = r"(?P<part>-?\d+)>\("
TILE = re.compile(
    r"matmul_tile<inferno::\w+, (?P<format>.*), (?P<tokens>\d+), (?P<tiles>\d+), " + PART
)
EXPANDED_TILE = re.compile(r"expanded_tile<inferno::\w+, (?P<format>.*), (?P<tokens>\d+), " + PART)

needs_disassembly = pytest.mark.skipif(
    not (OBJDUMP and platform.machine() in ("x86_64", "AMD64")),
    reason="reads x86, and needs objdump or llvm-objdump",
)


def objects() -> dict[str, Path]:
    """Return the objects of the build by instruction set."""
    found = [*ROOT.glob("build/cp3*/**/isa/*.o"), *ROOT.glob("build/arm/**/isa/neon*.o")]
    named = [(path.name.split(".")[0], path) for path in found]
    return {isa: path for isa, path in named if f"inferno_{isa}.dir" in path.parts}


@functools.cache
def code(isa: str) -> list[Function]:
    return disassemble(objects()[isa], arm=isa.startswith("neon"))


@functools.cache
def tiles(isa: str) -> dict[tuple[str, int, int], Function]:
    """Return the functions that multiply a register tile: (format, tokens, row tiles)."""
    found = {}
    for function in code(isa):
        if match := TILE.search(function.name):
            key = (match["format"], int(match["tokens"]), int(match["tiles"]))
            if key not in found or takes_a_part(function):
                found[key] = function
    return found


@functools.cache
def expanded_tiles(isa: str) -> dict[tuple[str, int], Function]:
    """Return the functions that multiply a tile of blocks taken apart: (format, tokens)."""
    found = {}
    for function in code(isa):
        if match := EXPANDED_TILE.search(function.name):
            key = (match["format"], int(match["tokens"]))
            if key not in found or takes_a_part(function):
                found[key] = function
    return found


def takes_a_part(function: Function) -> bool:
    match = TILE.search(function.name) or EXPANDED_TILE.search(function.name)
    return match is not None and int(match["part"]) >= 0


def prefill_tile(found: dict[tuple[int, int], Function]) -> tuple[int, int]:
    """Return the tokens and row tiles that a prompt's products take: a part, if there are parts."""
    parts = [key for key, function in found.items() if takes_a_part(function)]
    return max(parts or found)


def block_loop(function: Function) -> tuple:
    """Return the loop over blocks: the innermost that multiplies, and prefetches the next ones.

    A function that prefetches nothing has its blocks at hand.
    """
    fetches = any(PREFETCHES.match(i.name) for i in function.instructions)
    for loop in function.loops():
        names = [instruction.name for instruction in loop]
        fetching = any(map(PREFETCHES.match, names))
        if fetching == fetches and any(map(MULTIPLIES.match, names)):
            return loop
    raise AssertionError(f"no loop over blocks in {function.name}")


def runs_of(isa: str, format: str, tokens: int) -> int:
    """Return how often what belongs to a token waits in memory in a pass of the block loop."""
    return 1 if tokens <= NONE_WAIT_UP_TO.get(isa, 0) else RUNS.get(isa, {}).get(format, 1)


def spills(function: Function, accumulators: int, constants: int = 0, aside: int = 0) -> list[str]:
    """Say what a pass of the block loop does to the stack that it should not.

    It may read so many constants, and set so many registers aside.
    """
    block = block_loop(function)
    stores, loads = function.stack_traffic(block)
    for slot in [slot for slot in loads if "*" in slot]:
        del loads[slot]  # an element of an array, not a register's place
    found = loads.keys() - stores.keys()
    complaints = []
    if len(found) > constants:
        complaints = [f"{slot} loaded, a constant" for slot in found]
    if constants:
        for slot in found:
            del loads[slot]
    for what, traffic in (("stores", stores), ("loads", loads)):
        if traffic.total() > accumulators + aside:
            complaints.append(f"{traffic.total()} {what} for {accumulators} accumulators")
    for loop in function.loops():
        inside = loop != block and block[0].address <= loop[0].address
        if inside and loop[-1].address <= block[-1].address and any(function.stack_traffic(loop)):
            complaints.append(f"an inner loop at {loop[0].address:#x} touches the stack")
    return complaints


def instructions_per_256(isa: str, function: Function, tokens: int, row_tiles: int) -> float:
    """Count instructions but prefetches, for each 256 multiply-adds.

    A block of 256 columns is eight passes of its inner loop and what the outer one does besides.
    """
    inner = block_loop(function)
    count, columns = counted(inner), 32
    if "_K" in function.name:
        outer = next(
            loop
            for loop in function.loops()
            if loop[0].address <= inner[0].address
            and inner[-1].address <= loop[-1].address
            and len(loop) > len(inner)
        )
        count, columns = 8 * count + counted(outer) - count, 256
    return count * 256 / (row_tiles * LANES * columns * tokens)


def counts(instruction: Instruction) -> int:
    return not (PREFETCHES.match(instruction.name) or instruction.name.startswith("nop"))


def counted(loop: tuple) -> int:
    return sum(map(counts, loop))


def arm_instructions_per_256(function: Function) -> float:
    """Count them where codes are held: one code for all numbers of tokens, four at a time.

    What is counted is the way round through the loops over four tokens, of two slices of the rows.
    Of 256 columns there are eight such rounds, and then the loops that add up the minima.
    """
    loops = function.loops()

    def is_innermost(loop: tuple) -> bool:
        addresses = {instruction.address for instruction in loop}
        return not any(other is not loop and other[0].address in addresses for other in loops)

    def fours(least: int, *names: str) -> list[tuple[tuple, int]]:
        found = [
            (loop, ARM_TOKENS // 4)
            for loop in filter(is_innermost, loops)
            if sum(instruction.name in names for instruction in loop) >= least
        ]
        assert len(found) == 2  # slices
        return found

    dots = fours(4 * 8, "sdot", "smmla")
    count, columns = function.shortest_round(dots, counts), 32
    if "_K" in function.name:
        minima = fours(4 * 16, "smull", "smull2", "smlal", "smlal2")
        count, columns = 7 * count + function.shortest_round(dots + minima, counts), 256
    return count * 256 / (LANES * columns * ARM_TOKENS)


def derived_instructions_per_256(isa: str, tokens: int, row_tiles: int) -> float:
    """Derive what a Q4_0 tile needs, for each 256 multiply-adds."""
    registers = row_tiles * LANES * 32 // BITS[isa]  # of rows
    count = STEP[isa] + 1  # and the store of the accumulator
    total = registers * tokens * count + BROADCASTS * tokens + UNPACKING * registers + LOOP
    return total * 256 / (row_tiles * LANES * 32 * tokens)


def test_every_instruction_set_here_is_looked_at() -> None:
    if platform.machine() in ("x86_64", "AMD64"):
        assert {*_native.isas()} - {"scalar"} <= BITS.keys() == STEP.keys()


@needs_disassembly
@pytest.mark.parametrize("isa", [isa for isa in BITS if isa in objects()])
def test_block_loops_spill_nothing(isa: str) -> None:
    found = tiles(isa)
    formats = {format for format, _, _ in found}
    assert len(formats) == len(_native.formats())
    for format in formats:
        widest = max((tokens, rows) for name, tokens, rows in found if name == format)
        own = {key[1:]: f for key, f in found.items() if key[0] == format}
        for tokens, rows in {widest, prefill_tile(own), (1, 1)}:
            name = format.removeprefix("inferno::")
            vectors = rows * tokens * LANES * 32 // BITS[isa]
            accumulators = vectors * runs_of(isa, name, tokens)
            spare = name in UNPACKED.get(isa, ())
            allowed = (MOST_CONSTANTS, MOST_SET_ASIDE[isa]) if spare else (0, 0)
            complaints = spills(found[format, tokens, rows], accumulators, *allowed)
            assert complaints == [], (format, tokens, rows)


@needs_disassembly
@pytest.mark.parametrize("isa", [isa for isa in BITS if isa in objects()])
def test_loops_over_keys_and_values_touch_no_stack(isa: str) -> None:
    loops = 0
    for function in filter(lambda f: ATTENTION.search(f.name), code(isa)):
        seen: list[range] = []
        for loop in function.loops():  # innermost first
            span = range(loop[0].address, loop[-1].address)
            names = [instruction.name for instruction in loop]
            fetches = any(name.startswith("prefetch") for name in names)
            if not (fetches and any(name.startswith("vfmadd") for name in names)):
                continue
            if any(inner.start in span for inner in seen):
                continue
            seen.append(span)
            loops += 1
            assert not any(function.stack_traffic(loop)), function.name
    assert loops >= 2 * len(_native.cache_types())


@needs_disassembly
@pytest.mark.parametrize("isa", [isa for isa in BITS if isa in objects()])
def test_scores_of_int8_keys_spill_nothing(isa: str) -> None:
    found = [(f, match) for f in code(isa) if (match := SCORES.search(f.name))]
    assert found
    for function, match in found:
        vectors = int(match["tokens"]) * int(match["tiles"]) * LANES * 32 // BITS[isa]
        assert spills(function, vectors) == [], function.name


@needs_disassembly
@pytest.mark.parametrize("isa", [isa for isa in BITS if isa in objects()])
def test_loops_over_blocks_taken_apart_spill_nothing(isa: str) -> None:
    """Nothing is left to unpack: no constants, no register set aside."""
    found = expanded_tiles(isa)
    assert {"inferno::Q4_K", "inferno::Q5_K", "inferno::Q6_K"} <= {format for format, _ in found}
    widest = max(tokens for _, tokens in found)
    for (format, tokens), function in found.items():
        if tokens in (1, widest) or takes_a_part(function):
            runs = runs_of(isa, format.removeprefix("inferno::"), tokens)
            accumulators = tokens * LANES * 32 // BITS[isa] * runs
            assert spills(function, accumulators) == [], (format, tokens)


@needs_disassembly
@pytest.mark.parametrize("isa", [isa for isa in BITS if isa in objects()])
def test_a_prefill_tile_of_q4_0_takes_no_instruction_too_many(isa: str) -> None:
    found = {key[1:]: f for key, f in tiles(isa).items() if key[0] == "inferno::Q4_0"}
    tokens, rows = prefill_tile(found)
    count = instructions_per_256(isa, found[tokens, rows], tokens, rows)
    assert count <= derived_instructions_per_256(isa, tokens, rows) + ALLOWANCE


@pytest.mark.parametrize(
    ("isa", "format"), [(isa, format) for isa, formats in MOST.items() for format in formats]
)
def test_a_prefill_tile_takes_so_many_instructions(
    isa: str, format: str, record_property: Any
) -> None:
    if isa not in objects() or not (ARM_OBJDUMP if isa.startswith("neon") else OBJDUMP):
        pytest.skip(f"needs the object of {isa}, and objdump for it")
    if isa.startswith("neon"):
        name = "expanded_held_tile" if format == "Q4_K" else "::held_tile"
        (function,) = (f for f in code(isa) if name in f.name and f"inferno::{format}>" in f.name)
        count = arm_instructions_per_256(function)
        record_property("instructions", round(count, 1))
        print(f"{isa} {format}: {count:.1f} instructions for 256 multiply-adds")
        assert count <= MOST[isa][format]
        return
    every = tiles(isa) | {(*key, 1): f for key, f in expanded_tiles(isa).items()}
    found = {key[1:]: f for key, f in every.items() if key[0] == f"inferno::{format}"}
    tokens, rows = prefill_tile(found)
    count = instructions_per_256(isa, found[tokens, rows], tokens, rows)
    record_property("instructions", round(count, 1))
    print(f"{isa} {format}: {count:.1f} instructions for 256 multiply-adds")
    assert count <= MOST[isa][format]


LISTING = """
0000000000000000 <void inferno::matmul_tile<inferno::Avx2, inferno::Q4_0, 1, 1>(…)>:
   0:	mov    rbp,rsp
   4:	vmovaps YMMWORD PTR [rsp+0x40],ymm1
   8:	prefetcht0 BYTE PTR [rcx]
   c:	vpmaddubsw ymm1,ymm2,YMMWORD PTR [rax]
  10:	{}
  14:	vfmadd213ps ymm0,ymm1,YMMWORD PTR [rsp+0x20]
  18:	vmovaps YMMWORD PTR [rsp+0x20],ymm0
  1c:	jne    8 <void inferno::matmul_tile<inferno::Avx2, inferno::Q4_0, 1, 1>(…)+0x8>
  20:	ret
"""


@pytest.mark.parametrize(
    ("instruction", "complaint"),
    [
        ("vpaddw ymm1,ymm1,ymm3", ""),
        ("mov    QWORD PTR [rsp+0x60],rax", ""),  # a pointer, not a vector
        ("vpaddw ymm1,ymm1,YMMWORD PTR [rsp+0x40]", "a constant"),
        ("vmovaps YMMWORD PTR [rbp-0x40],ymm1", "2 stores for 1 accumulators"),
        ("vmovaps YMMWORD PTR [rsp+0x20],ymm1", "2 stores for 1 accumulators"),
    ],
)
def test_a_spill_is_seen(instruction: str, complaint: str) -> None:
    """What is not found below is worth as much as the eye that looks for it."""
    (function,) = functions(LISTING.format(instruction))
    complaints = spills(function, accumulators=1)
    assert complaint in " ".join(complaints) if complaint else complaints == []
    assert len(block_loop(function)) == 6

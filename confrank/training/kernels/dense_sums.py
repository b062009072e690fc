"""Sums over all rows in the kernels of DenseNet-BC, and what follows from them: statistics and gradients.

They are deterministic: each program writes its partial sums, and the last one to finish adds them up in order.
"""

import triton
import triton.language as tl


@triton.jit
def fold(values, ROWS: tl.constexpr, LINE: tl.constexpr, HELD: tl.constexpr):
    """Sums [HELD, LINE] over the rows that one thread holds of a matrix product [ROWS, LINE] on tensor cores.

    With HELD = 8 for each warp, at most ROWS / 2, each thread adds up what it has, and nothing is exchanged.
    """
    if HELD < ROWS:
        values = tl.sum(tl.reshape(values, [ROWS // (2 * HELD), HELD // 8, 2, 8, LINE]), axis=2)
        values = tl.reshape(tl.sum(values, axis=0), [HELD, LINE])
    return values


@triton.jit
def sum_over_programs(partial, programs, LINE: tl.constexpr):
    """Both sums [LINE] over the first axis of partial sums [programs, 2, LINE], in a fixed order."""
    AT_ONCE: tl.constexpr = 4096 // LINE
    lines, columns = tl.arange(0, AT_ONCE), tl.arange(0, LINE)
    first, second = tl.zeros([AT_ONCE, LINE], tl.float32), tl.zeros([AT_ONCE, LINE], tl.float32)
    for start in range(0, programs, AT_ONCE):
        there = partial + (start + lines)[:, None] * 2 * LINE + columns[None, :]
        written = (start + lines < programs)[:, None]
        first += tl.load(there, mask=written, other=0.0, cache_modifier=".cg")
        second += tl.load(there + LINE, mask=written, other=0.0, cache_modifier=".cg")
    return tl.sum(first, axis=0), tl.sum(second, axis=0)


@triton.jit
def is_last(first, second, partial, counter, program, programs, LINE: tl.constexpr):
    """Store two partial sums [LINE]; whether this program is the last to do so."""
    columns = tl.arange(0, LINE)
    tl.store(partial + program * 2 * LINE + columns, first)
    tl.store(partial + program * 2 * LINE + LINE + columns, second)
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1
    return last


@triton.jit
def finish_statistics(
    sums, squares, partial, counter, mean, inverse, variance, first, rows, eps,
    COUNT: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """The last program writes mean, 1 / standard deviation and variance of the channels from `first` on."""
    programs = tl.num_programs(0)
    if is_last(tl.sum(sums, axis=0), tl.sum(squares, axis=0), partial, counter, tl.program_id(0), programs, LINE):
        columns = tl.arange(0, LINE)
        middle, spread = sum_over_programs(partial, programs, LINE)
        middle = middle / rows
        spread = tl.maximum(spread / rows - middle * middle, 0.0)
        written = columns < COUNT
        tl.store(mean + first + columns, middle, mask=written)
        tl.store(inverse + first + columns, 1 / tl.sqrt(spread + eps), mask=written)
        tl.store(variance + first + columns, spread, mask=written)
        tl.store(counter, 0)


@triton.jit
def finish_gradient(
    sums, products, partial, counter, program, programs, gain, mean, inverse, gain_gradient, bias_gradient,
    slope, offset, columns, inside, rows, ADD: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """The last program writes the gradients of gain and bias, and (with ADD, adds) the slope and offset of x.

    `sums` are those of the masked gradient over a program's rows, `products` those of the gradient times x.
    """
    if is_last(sums, products, partial, counter, program, programs, LINE):
        of_bias, of_gain = sum_over_programs(partial, programs, LINE)
        steep = tl.load(inverse + columns, mask=inside, other=0.0)
        middle = tl.load(mean + columns, mask=inside, other=0.0)
        of_gain = (of_gain - middle * of_bias) * steep
        tl.store(gain_gradient + columns, of_gain, mask=inside)
        tl.store(bias_gradient + columns, of_bias, mask=inside)
        scale = tl.load(gain + columns, mask=inside, other=0.0) * steep / rows
        slanted = -scale * steep * of_gain
        level = -scale * of_bias - slanted * middle
        if ADD:
            slanted += tl.load(slope + columns, mask=inside, other=0.0)
            level += tl.load(offset + columns, mask=inside, other=0.0)
        tl.store(slope + columns, slanted, mask=inside)
        tl.store(offset + columns, level, mask=inside)
        tl.store(counter, 0)

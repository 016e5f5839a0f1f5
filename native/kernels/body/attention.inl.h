// Attention of a tile of query rows over pages of the KV cache: online softmax (Milakov and Gimelshein,
// arXiv:1805.02867) in steps of 64 positions, as FlashAttention does it (Dao et al., arXiv:2205.14135).
//
// Lanes are positions for scores and dimensions for sums of values (body/pages.inl.h), so neither product needs
// a horizontal sum. The steps stand at absolute positions, and every kSplit positions the softmax starts afresh
// and is merged left to right, whether one call visits all splits or each split has a call of its own.
#pragma once
#include "kernels/body/exp.inl.h"
#include "kernels/body/pages.inl.h"
#include "kernels/body/softcap.inl.h"
#include "kernels/table.h"

namespace inferno {

constexpr float kMinusInfinity = -__builtin_inff();
template <class Isa, class Cache>
void store_kv(const float* k, const float* v, int head_dim, int position, uint8_t* page) {
    Pages<Isa, Cache>::store(k, v, head_dim, position % kPagePositions, page);
}

// One step of the online softmax for R rows: scores become weights, and states are told the factor by which
// the new maximum shrinks them. Row by row each part would wait for the one before; part by part for all
// rows, the chains overlap (5 to 7 % of the whole kernel; docs/lab-notebook.md).
template <class Isa, int R>
INFERNO_INLINE void soften(float* scores, int positions, const int* visible, float* state, int64_t stride, int padded,
                           float* factors) {
    alignas(64) float shrink[16];
    float maxima[R];
    for (int r = 0; r < R; ++r) {
        float* row = scores + r * kPagePositions;
        auto highest = Isa::splat(kMinusInfinity);
        for (int p = 0; p < positions; p += kKeyGroup) {
            auto x = Isa::load(row + p);
            if (visible[r] < p + kKeyGroup) {
                x = Isa::keep_first(x, visible[r] - p, kMinusInfinity);
                Isa::store(row + p, x);
            }
            highest = Isa::max(highest, x);
        }
        float* s = state + r * stride + padded;
        const float maximum = Isa::max1(s[0], Isa::reduce_max(highest));
        // Where nothing was visible yet, differences from zero give weights and factors of zero.
        maxima[r] = maximum == kMinusInfinity ? 0.0f : maximum;
        shrink[r] = s[0] - maxima[r];
        s[0] = maximum;
    }
    for (int r = R; r < 16; ++r) shrink[r] = 0.0f;      // R <= kMaxGroupRows
    Isa::store(shrink, exp16<Isa>(Isa::load(shrink)));  // 1, exactly, where the maximum stands
    for (int r = 0; r < R; ++r) {
        float* row = scores + r * kPagePositions;
        auto sum = Isa::zero();
        for (int p = 0; p < positions; p += kKeyGroup) {
            const auto weight = exp16<Isa>(Isa::sub(Isa::load(row + p), Isa::splat(maxima[r])));
            Isa::store(row + p, weight);
            sum = Isa::add(sum, weight);
        }
        float& total = state[r * stride + padded + 1];
        total = total * shrink[r] + Isa::reduce_add(sum);
        factors[r] = shrink[r];
    }
}

// What a window hides at the beginning of a step, and the softcap: the scores of R rows at rest in memory.
template <class Isa, int R>
INFERNO_INLINE void bound_scores(const AttentionArgs& a, float* scores, int positions, const int* hidden) {
    for (int r = 0; r < R; ++r) {
        float* row = scores + r * kPagePositions;
        if (a.softcap > 0.0f)
            for (int p = 0; p < positions; p += kKeyGroup)
                Isa::store(row + p, softcap16<Isa>(Isa::load(row + p), a.softcap));
        for (int p = 0; p < hidden[r]; ++p) row[p] = kMinusInfinity;
    }
}

// One step for R rows. `ahead` leads from a place in this page to the same place in the next step's, which no
// hardware could guess: it is fetched meanwhile, at the pace of the arithmetic.
template <class Isa, class Cache, int R>
INFERNO_INLINE void attend_step(const AttentionArgs& a, int rows, const float* queries, const uint8_t* page,
                                const int* visible, const int* hidden, float* state, int64_t ahead) {
    if constexpr (R > 1) {
        if (rows < R) return attend_step<Isa, Cache, R - 1>(a, rows, queries, page, visible, hidden, state, ahead);
    }
    using P = Pages<Isa, Cache>;
    const int64_t stride = attention_state_floats(a.head_dim_padded);
    const int positions = visible[R - 1];
    alignas(64) float scores[R * kPagePositions];
    float factors[R];
    P::template score<R>(a, queries, page, positions, scores, ahead);
    bound_scores<Isa, R>(a, scores, positions, hidden);
    soften<Isa, R>(scores, positions, visible, state, stride, a.head_dim_padded, factors);
    P::template add<R>(a, scores, factors, page, positions, state, stride, ahead);
}

template <class Isa>
INFERNO_INLINE void clear_state(float* state, int padded) {
    for (int d = 0; d < padded; d += 16) Isa::store(state + d, Isa::zero());
    state[padded] = kMinusInfinity;
    state[padded + 1] = 0.0f;
}

template <class Isa>
void merge_states(float* into, const float* from, int padded) {
    const float theirs = from[padded];
    if (theirs == kMinusInfinity) return;
    const float ours = into[padded];
    if (ours == kMinusInfinity) {
        std::memcpy(into, from, sizeof(float) * (padded + 2));
        return;
    }
    const float maximum = Isa::max1(ours, theirs);
    const float keep = exp1<Isa>(ours - maximum), take = exp1<Isa>(theirs - maximum);
    for (int d = 0; d < padded; d += 16) {
        const auto kept = Isa::mul(Isa::load(into + d), Isa::splat(keep));
        Isa::store(into + d, Isa::fma(Isa::load(from + d), Isa::splat(take), kept));
    }
    into[padded] = maximum;
    into[padded + 1] = Isa::fma1(from[padded + 1], take, into[padded + 1] * keep);
}

template <class Isa>
void finish_state(const float* state, int head_dim, int padded, float sink, float* out) {
    float inverse = 1.0f / state[padded + 1];
    if (sink != kMinusInfinity) {  // one more score, whose value is zero
        const float maximum = Isa::max1(state[padded], sink);
        const float keep = exp1<Isa>(state[padded] - maximum), take = exp1<Isa>(sink - maximum);
        // A maximum that is not a number stays one.
        inverse = keep / Isa::fma1(state[padded + 1], keep, take) + (state[padded] - state[padded]);
    }
    // A masked row adds +0 to its sums or nothing at all, as its tile has it: + 0 makes both the same.
    for (int d = 0; d < head_dim; ++d) out[d] = state[d] * inverse + 0.0f;
}

template <class Isa, class Cache>
void attention(const AttentionArgs& a) {
    using P = Pages<Isa, Cache>;
    const int64_t stride = attention_state_floats(a.head_dim_padded);
    const int groups = (a.rows + Isa::kGroupRows - 1) / Isa::kGroupRows;
    const auto first_row = [&](int group) { return a.rows * group / groups; };  // groups of even size
    float* const queries = a.scratch + a.rows * stride;                         // group by group
    const int64_t query_floats = P::query_floats(a.head_dim);
    for (int g = 0; g < groups; ++g) {
        const int first = first_row(g);
        P::prepare(a.queries + first, first_row(g + 1) - first, a.head_dim, queries + first * query_floats);
    }
    const int64_t end = a.first_position + (a.rows - 1) / a.group + 1;  // of the last row
    // What lies before every row's window is skipped. It would not change a bit: weights of zero, and merges of
    // what saw nothing.
    const int64_t seen = a.window > 0 ? a.first_position + 1 - a.window : 0;
    const int64_t begin = seen > 0 ? seen / kPagePositions * kPagePositions : 0;
    const int64_t first_split = a.first_split < begin / kSplit ? begin / kSplit : a.first_split;
    for (int r = 0; r < a.rows; ++r) clear_state<Isa>(a.state + r * stride, a.head_dim_padded);
    for (int64_t split = first_split; split < a.last_split; ++split) {
        // The first split visited fills the state itself: merging into an empty one is a copy.
        float* const state = split == first_split ? a.state : a.scratch;
        for (int r = 0; state != a.state && r < a.rows; ++r) clear_state<Isa>(state + r * stride, a.head_dim_padded);
        const int64_t last = end < (split + 1) * kSplit ? end : (split + 1) * kSplit;
        const int64_t start = split * kSplit < begin ? begin : split * kSplit;
        for (int64_t base = start; base < last; base += kPagePositions) {
            const uint8_t* const page = a.pages[base / kPagePositions] + a.page_offset;
            const bool more = base + kPagePositions < (last < end && split + 1 < a.last_split ? end : last);
            const int64_t ahead = more ? a.pages[base / kPagePositions + 1] + a.page_offset - page : 0;
            for (int g = 0; g < groups; ++g) {
                const int first = first_row(g), rows = first_row(g + 1) - first;
                int visible[kMaxGroupRows], hidden[kMaxGroupRows];
                for (int r = 0; r < rows; ++r) {
                    const int64_t v = a.first_position + (first + r) / a.group + 1 - base;
                    visible[r] = (int)(v < 0 ? 0 : v > kPagePositions ? kPagePositions : v);
                    const int64_t h = v - a.window;
                    hidden[r] = (int)(a.window == 0 || h < 0 ? 0 : h > kPagePositions ? kPagePositions : h);
                }
                if (visible[rows - 1] == 0 || hidden[0] == kPagePositions) continue;
                attend_step<Isa, Cache, Isa::kGroupRows>(a, rows, queries + first * query_floats, page, visible, hidden,
                                                         state + first * stride, g == 0 ? ahead : 0);
            }
        }
        if (state == a.state) continue;
        for (int r = 0; r < a.rows; ++r) merge_states<Isa>(a.state + r * stride, state + r * stride, a.head_dim_padded);
    }
}

}  // namespace inferno

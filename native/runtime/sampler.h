// From a row of logits to a token. Draws come from a counter-based generator keyed by (seed, position,
// choice), so a text depends on the model, the ids and the parameters, and on nothing that happened in
// between. What the options mean, and their order: docs/guides/use-it-from-python.md.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernels/table.h"

namespace inferno {

struct SamplerOptions {
    float temperature = 0.8f;  // 0: greedy
    int64_t top_k = 40;        // 0: all
    float typical_p = 1.0f, top_p = 0.95f, min_p = 0.05f;
    float repetition_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
    int64_t repeat_last_n = -1;  // tokens the three penalties look back; -1: all
    float dry_multiplier = 0.0f, dry_base = 1.75f;
    int64_t dry_allowed_length = 2, dry_penalty_last_n = -1;  // -1: all
    std::unordered_set<int32_t> dry_sequence_breakers;
    float xtc_probability = 0.0f, xtc_threshold = 0.1f;
    std::unordered_map<int32_t, float> logit_bias;  // -100 and below bans
    std::vector<int32_t> suppress_tokens;
    uint64_t seed = 0;
    uint32_t choice = 0;  // which of several texts with one seed
};

struct Candidate {
    int32_t token;
    float logit;
};

class Sampler {
public:
    // Tokens at or beyond `num_tokens` are never chosen (the padding of a vocabulary).
    Sampler(const KernelTable& kernels, int64_t num_tokens, SamplerOptions options);

    int64_t num_tokens() const { return num_tokens_; }

    // A token that is now part of the text: `generated` ones count for presence and frequency, all for
    // repetition and DRY.
    void accept(int32_t token, bool generated);

    // The token for `position`, from logits (num_tokens or more). Ties go to the lower id. `mask` has a bit a
    // token, lowest bits first, or is null: without its bit a token does not exist, whatever its logit.
    int32_t sample(const float* logits, int64_t position, const uint32_t* mask = nullptr);

private:
    struct Accepted {
        int32_t token;
        bool generated;
    };
    struct Times {
        int32_t all, generated;
    };

    const float* adjust(const float* logits, const uint32_t* mask);
    void penalize_repeated_sequences();

    bool rank_more();
    void keep_typical();
    int32_t draw(int64_t position);

    const KernelTable& kernels_;
    const int64_t num_tokens_;
    const SamplerOptions options_;
    const bool penalizes_, dries_;
    std::vector<Accepted> history_;             // if an option looks back
    std::unordered_map<int32_t, Times> times_;  // in the window of the penalties

    // Of the call that runs:
    std::vector<float> adjusted_;
    const float* logits_ = nullptr;  // adjusted
    float highest_ = 0.0f;
    // The best, best first, and their weights exp((logit - highest) / temperature); more on demand.
    std::vector<Candidate> ranked_;
    std::vector<float> weights_;
    int64_t num_ranked_ = 0;          // how many of `ranked_` are in their places
    int64_t num_candidates_ = 0;      // how many there are to rank
    std::vector<float> all_weights_;  // by token, if the candidates are all tokens
    double total_ = 0.0;              // the weight of all candidates
    std::vector<int32_t> matches_;    // lengths, in penalize_repeated_sequences
};

// Throws `invalid-checkpoint` if a logit is no number, or larger than all; minus infinity is a ban.
void check_numbers(const float* logits, int64_t n);
// log(sum(exp(logits))): a logit minus this is its log probability, whatever the sampler's options.
double log_sum_exp(const KernelTable& kernels, const float* logits, int64_t n);
// Kullback and Leibler's: of the distribution of `others` from that of `logits`, sum(p (log p - log q)). The totals are
// their log_sum_exp, which checked them.
double divergence(const KernelTable& kernels, const float* logits, double total, const float* others,
                  double other_total, int64_t n);
// The `count` most likely, best first.
std::vector<Candidate> top_logits(const float* logits, int64_t n, int64_t count);

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), first 53 bits, in [0, 1).
double uniform(uint64_t seed, uint64_t position, uint64_t choice);

}  // namespace inferno

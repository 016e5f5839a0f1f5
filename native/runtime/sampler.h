// From a row of logits to a token. Draws come from a counter-based generator keyed by (seed, position),
// so a text depends on the model, the ids and the parameters, and on nothing that happened in between.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/table.h"

namespace inferno {

struct SamplerOptions {
    float temperature = 0.8f;  // 0: greedy
    int top_k = 40;            // 0: all
    float top_p = 0.95f, min_p = 0.05f;
    float repetition_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
    std::unordered_map<int32_t, float> logit_bias;  // -100 and below bans
    uint64_t seed = 0;
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

    // A token that is now part of the text: `generated` ones count for presence and frequency, all for repetition.
    void accept(int32_t token, bool generated);

    // The token for `position`, from logits (num_tokens or more). Steps: bias, penalties; greedy, or
    // temperature, top-k, top-p, min-p, draw. Ties go to the lower id.
    int32_t sample(const float* logits, int64_t position);

private:
    void adjust(const float* logits);
    // The best `count` of adjusted_, best first.
    void best(int64_t count);

    const KernelTable& kernels_;
    const int64_t num_tokens_;
    const SamplerOptions options_;
    std::unordered_map<int32_t, int32_t> times_generated_;
    std::unordered_map<int32_t, bool> seen_;
    std::vector<float> adjusted_;
    std::vector<float> exps_;
    std::vector<Candidate> candidates_;
};

// Throws `invalid-checkpoint` if a logit is no number, or larger than all; minus infinity is a ban.
void check_numbers(const float* logits, int64_t n);
// log(sum(exp(logits))): a logit minus this is its log probability, whatever the sampler's options.
double log_sum_exp(const KernelTable& kernels, const float* logits, int64_t n);
// The `count` most likely, best first.
std::vector<Candidate> top_logits(const float* logits, int64_t n, int64_t count);

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), first 53 bits, in [0, 1).
double uniform(uint64_t seed, uint64_t position, uint64_t choice);

}  // namespace inferno

#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/float_environment.h"

namespace inferno {
namespace {

bool better(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// A bias of -100, the end of OpenAI's scale, is a ban.
constexpr float kBan = -100.0f;

// Nucleus sizes tried before sorting everything: most are found in the first.
constexpr int64_t kFirstNucleus = 256, kNucleusGrowth = 16;

}  // namespace

double uniform(uint64_t seed, uint64_t position, uint64_t choice) {
    uint32_t c[4] = {(uint32_t)position, (uint32_t)(position >> 32), (uint32_t)choice, (uint32_t)(choice >> 32)};
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                                  (uint32_t)a};
        std::copy(next, next + 4, c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    const uint64_t bits = (uint64_t)c[0] << 32 | c[1];
    return (double)(bits >> 11) * 0x1p-53;
}

std::vector<Candidate> top_logits(const float* logits, int64_t n, int64_t count) {
    // A heap whose front is the worst of the best so far: nearly every token is turned away by one comparison.
    std::vector<Candidate> heap;
    count = std::min(count, n);
    if (count <= 0) return heap;
    heap.reserve((size_t)count);
    for (int64_t i = 0; i < n; ++i) {
        const Candidate candidate{(int32_t)i, logits[i]};
        if ((int64_t)heap.size() < count) {
            heap.push_back(candidate);
            std::push_heap(heap.begin(), heap.end(), better);
        } else if (candidate.logit > heap.front().logit) {
            std::pop_heap(heap.begin(), heap.end(), better);
            heap.back() = candidate;
            std::push_heap(heap.begin(), heap.end(), better);
        }
    }
    std::sort_heap(heap.begin(), heap.end(), better);
    return heap;
}

// Whatever the options, and wherever it stands: a number that is none must not be talked over.
void check_numbers(const float* logits, int64_t n) {
    bool sound = true;
    for (int64_t i = 0; i < n; ++i) sound &= logits[i] < std::numeric_limits<float>::infinity();  // false for NaN
    if (!sound)
        throw Error("invalid-checkpoint", "The model's logits are not numbers",
                    "its weights are damaged, or overflow in the type they were converted to");
}

double log_sum_exp(const KernelTable& kernels, const float* logits, int64_t n) {
    const FloatEnvironment environment;
    check_numbers(logits, n);
    const float highest = *std::max_element(logits, logits + n);
    double sum = 0.0;
    float shifted[256], exps[256];
    for (int64_t i = 0; i < n; i += 256) {
        const int64_t count = std::min<int64_t>(256, n - i);
        for (int64_t j = 0; j < count; ++j) shifted[j] = logits[i + j] - highest;
        kernels.exp(shifted, exps, count);
        for (int64_t j = 0; j < count; ++j) sum += exps[j];
    }
    return highest + std::log(sum);
}

Sampler::Sampler(const KernelTable& kernels, int64_t num_tokens, SamplerOptions options)
    : kernels_(kernels), num_tokens_(num_tokens), options_(std::move(options)) {}

void Sampler::accept(int32_t token, bool generated) {
    // Prompts may hold ids that the tokenizer has no token for: rows that pad an embedding.
    if (token < 0 || token >= num_tokens_) return;
    if (options_.repetition_penalty != 1.0f) seen_[token] = true;
    if (generated && (options_.presence_penalty != 0.0f || options_.frequency_penalty != 0.0f))
        ++times_generated_[token];
}

void Sampler::adjust(const float* logits) {
    check_numbers(logits, num_tokens_);
    adjusted_.assign(logits, logits + num_tokens_);
    for (const auto& [token, bias] : options_.logit_bias) {
        if (token < 0 || token >= num_tokens_) continue;
        if (bias <= kBan)
            adjusted_[token] = -std::numeric_limits<float>::infinity();
        else
            adjusted_[token] += bias;
    }
    // Keskar et al., "CTRL", arXiv:1909.05858, section 4.1: divide what is positive, multiply the rest.
    for (const auto& [token, yes] : seen_) {
        float& logit = adjusted_[token];
        logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
    }
    for (const auto& [token, times] : times_generated_)
        adjusted_[token] -= options_.presence_penalty + options_.frequency_penalty * (float)times;
}

void Sampler::best(int64_t count) { candidates_ = top_logits(adjusted_.data(), num_tokens_, count); }

int32_t Sampler::sample(const float* logits, int64_t position) {
    const FloatEnvironment environment;
    adjust(logits);
    const auto refuse_if_banned = [&] {
        if (candidates_[0].logit == -std::numeric_limits<float>::infinity())
            throw Error("invalid-option", "`logit_bias` bans every token", "leave at least one token allowed");
    };
    if (options_.temperature == 0.0f) {
        best(1);
        refuse_if_banned();
        return candidates_[0].token;
    }
    const int64_t limit = options_.top_k > 0 ? std::min<int64_t>(options_.top_k, num_tokens_) : num_tokens_;
    // Without top-k, the nucleus is taken of the whole vocabulary's mass, but only its front is sorted.
    int64_t count = options_.top_k > 0 ? limit : std::min(kFirstNucleus, limit);
    best(count);
    refuse_if_banned();
    const float highest = candidates_[0].logit;
    double total = -1.0;
    std::vector<float> weights;
    const auto weigh = [&] {
        weights.resize(candidates_.size());
        for (size_t i = 0; i < weights.size(); ++i)
            weights[i] = (candidates_[i].logit - highest) / options_.temperature;
        kernels_.exp(weights.data(), weights.data(), (int64_t)weights.size());
    };
    weigh();
    if (count < limit) {
        exps_.resize((size_t)num_tokens_);
        for (int64_t i = 0; i < num_tokens_; ++i) exps_[i] = (adjusted_[i] - highest) / options_.temperature;
        kernels_.exp(exps_.data(), exps_.data(), num_tokens_);
        total = 0.0;
        for (int64_t i = 0; i < num_tokens_; ++i) total += exps_[i];
    }
    size_t kept = 0;
    double kept_mass = 0.0;
    while (true) {
        if (count == limit) {
            total = 0.0;
            for (const float w : weights) total += w;
        }
        kept = 0;
        kept_mass = 0.0;
        while (kept < weights.size() && (kept == 0 || kept_mass < options_.top_p * total)) kept_mass += weights[kept++];
        const bool found = kept < weights.size() || kept_mass >= options_.top_p * total;
        // Best first: everything after the first that min-p drops is dropped too.
        const bool floor_reached = weights[kept - 1] < options_.min_p;
        if (found || floor_reached || count == limit) break;
        count = std::min(count * kNucleusGrowth, limit);
        best(count);
        weigh();
    }
    while (kept > 1 && weights[kept - 1] < options_.min_p) kept_mass -= weights[--kept];
    kept_mass = 0.0;
    for (size_t i = 0; i < kept; ++i) kept_mass += weights[i];
    const double target = uniform(options_.seed, (uint64_t)position, 0) * kept_mass;
    double sum = 0.0;
    for (size_t i = 0; i < kept; ++i) {
        sum += weights[i];
        if (target < sum) return candidates_[i].token;
    }
    return candidates_[kept - 1].token;
}

}  // namespace inferno

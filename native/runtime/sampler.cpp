#include "runtime/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/float_environment.h"

namespace inferno {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool better(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// A bias of -100, the end of OpenAI's scale, is a ban.
constexpr float kBan = -100.0f;

// How many tokens are ranked before a draw or a filter asks for more: most need no more than the first.
constexpr int64_t kFirstRanked = 256, kRankedGrowth = 4;
// A heap of the best is cheaper than moving the whole vocabulary up to about here.
constexpr int64_t kLargestHeap = 1024;

// Independent sums and maxima, as many as two registers of any instruction set hold: the compiler may
// keep them side by side without reordering anything.
constexpr int64_t kLanes = 16;
// Logits skipped at once if none of them is among the best so far.
constexpr int64_t kBlockLogits = 64;

// A penalty of DRY grows exponentially; beyond this it bans, and it stays a number.
constexpr double kLargestPenalty = 1e30;

// What a random number is for is part of its key: the token, and whether XTC applies, are drawn apart.
constexpr uint64_t kTokenDraw = 0, kXtcDraw = 1;
double uniform_for(uint64_t purpose, const SamplerOptions& options, int64_t position) {
    return uniform(options.seed, (uint64_t)position, purpose << 32 | options.choice);
}

float highest_of(const float* x, int64_t n) {
    float lanes[kLanes];
    std::fill(lanes, lanes + kLanes, -kInfinity);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        for (int64_t j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
    return *std::max_element(lanes, lanes + kLanes);
}

double sum_of(const float* x, int64_t n) {
    double lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        for (int64_t j = 0; j < kLanes; ++j) lanes[j] += x[i + j];
    for (; i < n; ++i) lanes[0] += x[i];
    double sum = 0.0;
    for (const double lane : lanes) sum += lane;
    return sum;
}

int32_t is_unsound(float logit) { return logit < kInfinity ? 0 : 1; }  // NaN too

// The logits of the tokens in the mask, and minus infinity for the others.
void assign_masked(std::vector<float>& out, const float* logits, int64_t n, const uint32_t* mask) {
    out.assign((size_t)n, -kInfinity);
    for (int64_t i = 0; i < n; i += 32)
        for (uint32_t bits = mask[i / 32]; bits != 0; bits &= bits - 1) {
            const int64_t token = i + std::countr_zero(bits);
            if (token < n) out[(size_t)token] = logits[token];
        }
}

// Sort the elements that belong to [first, last) of a vector whose first `first` are in place.
void sort_part(auto& vector, int64_t first, int64_t last, auto before) {
    const auto begin = vector.begin();
    if (last < (int64_t)vector.size()) std::nth_element(begin + first, begin + last, vector.end(), before);
    std::sort(begin + first, begin + last, before);
}

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
    count = std::min(count, n);
    if (count <= 0) return {};
    if (count > kLargestHeap) {
        std::vector<Candidate> all((size_t)n);
        for (int64_t i = 0; i < n; ++i) all[i] = {(int32_t)i, logits[i]};
        sort_part(all, 0, count, better);
        all.resize((size_t)count);
        return all;
    }
    // A heap whose front is the worst of the best so far: nearly every block is turned away by one comparison.
    std::vector<Candidate> heap;
    heap.reserve((size_t)count);
    for (int64_t i = 0; i < n; i += kBlockLogits) {
        const int64_t end = std::min(i + kBlockLogits, n);
        if ((int64_t)heap.size() == count && !(highest_of(logits + i, end - i) > heap.front().logit)) continue;
        for (int64_t j = i; j < end; ++j) {
            const Candidate candidate{(int32_t)j, logits[j]};
            if ((int64_t)heap.size() < count) {
                heap.push_back(candidate);
                std::push_heap(heap.begin(), heap.end(), better);
            } else if (candidate.logit > heap.front().logit) {
                std::pop_heap(heap.begin(), heap.end(), better);
                heap.back() = candidate;
                std::push_heap(heap.begin(), heap.end(), better);
            }
        }
    }
    std::sort_heap(heap.begin(), heap.end(), better);
    return heap;
}

// Whatever the options, and wherever it stands: a number that is none must not be talked over.
void check_numbers(const float* logits, int64_t n) {
    int32_t unsound[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        for (int64_t j = 0; j < kLanes; ++j) unsound[j] |= is_unsound(logits[i + j]);
    for (; i < n; ++i) unsound[0] |= is_unsound(logits[i]);
    const bool sound = std::all_of(unsound, unsound + kLanes, [](int32_t lane) { return lane == 0; });
    if (!sound)
        throw Error("invalid-checkpoint", "The model's logits are not numbers",
                    "its weights are damaged, or overflow in the type they were converted to");
}

// The natural logarithm of a finite x >= 2^-1022, in additions, multiplications and divisions alone: a C library's
// would differ from system to system. With x = 2^e m, f = m - 1 and s = f / (m + 1),
// log m = 2 (s + s^3/3 + s^5/5 + …) = f - s (f - 2 (s^2/3 + s^4/5 + …)), where f is exact. sqrt(1/2) <= m <= sqrt(2)
// keeps |s| below 0.1716, and the first term left out, s^22/23 of s, below 2^-60 of it.
double natural_log(double x) {
    // The first 33 bits of log 2, whose product with an exponent is exact, and the rest.
    constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
    int exponent;
    double m = std::frexp(x, &exponent);  // in [1/2, 1), exactly
    if (m < 0x1.6a09e667f3bcdp-1) m *= 2.0, --exponent;
    const double f = m - 1.0, s = f / (m + 1.0), z = s * s;
    double p = 2.0 / 21.0;
    for (int odd = 19; odd >= 3; odd -= 2) p = p * z + 2.0 / odd;
    return exponent * kLn2High - ((s * (f - z * p) - exponent * kLn2Low) - f);
}

double log_sum_exp(const KernelTable& kernels, const float* logits, int64_t n) {
    const FloatEnvironment environment;
    check_numbers(logits, n);
    const float highest = highest_of(logits, n);
    double sum = 0.0;
    float shifted[256], exps[256];
    for (int64_t i = 0; i < n; i += 256) {
        const int64_t count = std::min<int64_t>(256, n - i);
        for (int64_t j = 0; j < count; ++j) shifted[j] = logits[i + j] - highest;
        kernels.exp(shifted, exps, count);
        sum += sum_of(exps, count);
    }
    return highest + natural_log(sum);
}

double divergence(const KernelTable& kernels, const float* logits, double total, const float* others,
                  double other_total, int64_t n) {
    const FloatEnvironment environment;
    double lanes[kLanes] = {};
    float logprobs[256], chances[256];
    for (int64_t i = 0; i < n; i += 256) {
        const int64_t count = std::min<int64_t>(256, n - i);
        for (int64_t j = 0; j < count; ++j) logprobs[j] = (float)(logits[i + j] - total);
        kernels.exp(logprobs, chances, count);
        // A token without a chance counts nothing, also where both logits are minus infinity.
        for (int64_t j = 0; j < count; ++j)
            if (chances[j] > 0.0f) lanes[j % kLanes] += (double)chances[j] * (logits[i + j] - others[i + j]);
    }
    double sum = 0.0;
    for (const double lane : lanes) sum += lane;
    return sum - (total - other_total);  // which counts once, for the chances sum to 1
}

Sampler::Sampler(const KernelTable& kernels, int64_t num_tokens, SamplerOptions options)
    : kernels_(kernels),
      num_tokens_(num_tokens),
      options_(std::move(options)),
      penalizes_((options_.repetition_penalty != 1.0f || options_.presence_penalty != 0.0f ||
                  options_.frequency_penalty != 0.0f) &&
                 options_.repeat_last_n != 0),
      dries_(options_.dry_multiplier != 0.0f && options_.dry_penalty_last_n != 0) {}

void Sampler::accept(int32_t token, bool generated) {
    if (!penalizes_ && !dries_) return;
    history_.push_back({token, generated});
    if (!penalizes_) return;
    const auto count = [&](const Accepted& accepted, int32_t by) {
        Times& times = times_[accepted.token];
        times.all += by;
        times.generated += accepted.generated ? by : 0;
    };
    count(history_.back(), 1);
    const int64_t window = options_.repeat_last_n;
    if (window >= 0 && (int64_t)history_.size() > window) {
        const Accepted& left = history_[history_.size() - 1 - (size_t)window];
        count(left, -1);
        if (times_[left.token].all == 0) times_.erase(left.token);
    }
}

// The logits after mask, bias, bans and penalties: those given, if there is nothing to change.
const float* Sampler::adjust(const float* logits, const uint32_t* mask) {
    check_numbers(logits, num_tokens_);
    const bool is_plain = options_.logit_bias.empty() && options_.suppress_tokens.empty() && history_.empty();
    if (is_plain && mask == nullptr) return logits;
    if (mask != nullptr)
        assign_masked(adjusted_, logits, num_tokens_, mask);
    else
        adjusted_.assign(logits, logits + num_tokens_);
    // Prompts and options may hold ids that the tokenizer has no token for: rows that pad an embedding.
    const auto exists = [&](int32_t token) { return token >= 0 && token < num_tokens_; };
    for (const auto& [token, bias] : options_.logit_bias)
        if (exists(token)) adjusted_[token] = bias <= kBan ? -kInfinity : adjusted_[token] + bias;
    for (const int32_t token : options_.suppress_tokens)
        if (exists(token)) adjusted_[token] = -kInfinity;
    for (const auto& [token, times] : times_) {
        if (!exists(token)) continue;
        float& logit = adjusted_[token];
        // Keskar et al., "CTRL", arXiv:1909.05858, section 4.1: divide what is positive, multiply the rest.
        if (options_.repetition_penalty != 1.0f)
            logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
        if (times.generated > 0)
            logit -= options_.presence_penalty + options_.frequency_penalty * (float)times.generated;
        // A division may overflow, and infinity has no difference to itself.
        logit = std::min(logit, std::numeric_limits<float>::max());
    }
    if (dries_) penalize_repeated_sequences();
    return adjusted_.data();
}

// DRY, "don't repeat yourself" (P. E. Weidmann, text-generation-webui, pull request 5677): a token that would
// make the end of the text repeat an earlier passage is penalized by how long the passage is.
void Sampler::penalize_repeated_sequences() {
    const int64_t window = options_.dry_penalty_last_n, known = (int64_t)history_.size();
    const int64_t n = window >= 0 ? std::min(window, known) : known;
    const auto back = [&](int64_t i) { return history_[(size_t)(known - 1 - i)].token; };  // 0 is the last
    const auto breaks = [&](int32_t token) { return options_.dry_sequence_breakers.contains(token); };
    int64_t longest = 0;  // no passage reaches over a breaker
    while (longest < n && !breaks(back(longest))) ++longest;
    if (longest == 0) return;
    // matches_[i]: how far the text that ends i tokens ago agrees, backwards, with the text that ends now. The
    // Z function of the reversed text (Gusfield, "Algorithms on Strings, Trees and Sequences", 1.4): O(n).
    matches_.assign((size_t)n, 0);
    std::unordered_map<int32_t, int32_t> repeated;  // a token -> the longest passage it would prolong
    for (int64_t i = 1, left = 0, right = 0; i < n; ++i) {
        int64_t length = i < right ? std::min<int64_t>(right - i, matches_[(size_t)(i - left)]) : 0;
        while (i + length < n && back(length) == back(i + length)) ++length;
        matches_[(size_t)i] = (int32_t)length;
        if (i + length > right) left = i, right = i + length;
        const int32_t next = back(i - 1);
        length = std::min(length, longest);
        if (length >= std::max<int64_t>(options_.dry_allowed_length, 1) && !breaks(next))
            repeated[next] = std::max(repeated[next], (int32_t)length);
    }
    for (const auto& [token, length] : repeated) {
        if (token < 0 || token >= num_tokens_) continue;
        double penalty = options_.dry_multiplier;
        for (int64_t i = options_.dry_allowed_length; i < length && penalty < kLargestPenalty; ++i)
            penalty *= options_.dry_base;
        adjusted_[token] -= (float)std::min(penalty, kLargestPenalty);
    }
}

// Rank and weigh more of the candidates; false if all are.
bool Sampler::rank_more() {
    const int64_t ranked = num_ranked_;
    if (ranked == num_candidates_) return false;
    num_ranked_ = std::min(num_candidates_, ranked * kRankedGrowth);
    if (num_ranked_ <= kLargestHeap) {
        ranked_ = top_logits(logits_, num_tokens_, num_ranked_);
    } else {
        const bool is_first = (int64_t)ranked_.size() < num_tokens_;
        if (is_first) {  // from here on it holds all tokens, of which `num_ranked_` are in their places
            ranked_.resize((size_t)num_tokens_);
            for (int64_t i = 0; i < num_tokens_; ++i) ranked_[(size_t)i] = {(int32_t)i, logits_[i]};
        }
        sort_part(ranked_, is_first ? 0 : ranked, num_ranked_, better);
    }
    weights_.resize((size_t)num_ranked_);
    for (int64_t i = ranked; i < num_ranked_; ++i) weights_[(size_t)i] = all_weights_[(size_t)ranked_[(size_t)i].token];
    return true;
}

// Meister et al., "Locally Typical Sampling", arXiv:2202.00666: keep those whose surprise is nearest to the
// expected one, until they have the share `typical_p`. With s the scaled logit, a token's surprise is
// log(total) - s, so the distance to the mean is that of s to the mean of s, and no logarithm is needed.
void Sampler::keep_typical() {
    struct Typical {
        double distance;
        Candidate candidate;
        float weight;
    };
    std::vector<Typical> all;
    all.reserve(all_weights_.empty() ? ranked_.size() : all_weights_.size());
    const auto consider = [&](const Candidate& candidate, float weight) {
        if (weight > 0.0f)
            all.push_back({(double)(candidate.logit - highest_) / options_.temperature, candidate, weight});
    };
    if (all_weights_.empty())
        for (size_t i = 0; i < ranked_.size(); ++i) consider(ranked_[i], weights_[i]);
    else
        for (int64_t i = 0; i < num_tokens_; ++i) consider({(int32_t)i, logits_[i]}, all_weights_[(size_t)i]);
    double mean = 0.0;
    for (const Typical& t : all) mean += t.weight * t.distance;
    mean /= total_;
    for (Typical& t : all) t.distance = std::abs(t.distance - mean);
    const auto more_typical = [](const Typical& a, const Typical& b) {
        return a.distance < b.distance || (a.distance == b.distance && better(a.candidate, b.candidate));
    };
    size_t kept = 0, sorted = 0;
    double mass = 0.0;
    const double enough = options_.typical_p * total_;
    while (kept < all.size() && (kept == 0 || mass < enough)) {
        if (kept == sorted) {  // sorted only as far as it takes
            const size_t more = std::min(std::max((size_t)kFirstRanked, sorted * (size_t)kRankedGrowth), all.size());
            sort_part(all, (int64_t)sorted, (int64_t)more, more_typical);
            sorted = more;
        }
        mass += all[kept++].weight;
    }
    all.resize(kept);
    std::sort(all.begin(), all.end(),
              [](const Typical& a, const Typical& b) { return better(a.candidate, b.candidate); });
    ranked_.clear();
    weights_.clear();
    for (const Typical& t : all) {
        ranked_.push_back(t.candidate);
        weights_.push_back(t.weight);
    }
    num_candidates_ = num_ranked_ = (int64_t)kept;
    total_ = sum_of(weights_.data(), (int64_t)kept);
}

int32_t Sampler::sample(const float* logits, int64_t position, const uint32_t* mask) {
    const FloatEnvironment environment;
    logits_ = adjust(logits, mask);
    const bool is_greedy = options_.temperature == 0.0f, ranks_all = !is_greedy && options_.top_k == 0;
    num_candidates_ = is_greedy ? 1 : ranks_all ? num_tokens_ : std::min(options_.top_k, num_tokens_);
    ranked_ = top_logits(logits_, num_tokens_, ranks_all ? kFirstRanked : num_candidates_);
    num_ranked_ = (int64_t)ranked_.size();
    highest_ = ranked_[0].logit;
    if (highest_ == -kInfinity)
        throw Error("invalid-option",
                    mask == nullptr ? "`logit_bias` or `suppress_tokens` bans every token"
                                    : "`logit_bias` or `suppress_tokens` bans every token that the constraint allows",
                    "leave at least one token allowed");
    return is_greedy ? ranked_[0].token : draw(position);
}

// Temperature, typical-p, top-p, min-p, XTC, draw: of the ranked candidates, and of more as they are needed.
int32_t Sampler::draw(int64_t position) {
    const auto weigh = [&](std::vector<float>& weights) {
        for (float& w : weights) w = (w - highest_) / options_.temperature;
        kernels_.exp(weights.data(), weights.data(), (int64_t)weights.size());
    };
    weights_.resize(ranked_.size());
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i] = ranked_[i].logit;
    weigh(weights_);
    all_weights_.clear();
    if (num_ranked_ < num_candidates_) {
        all_weights_.assign(logits_, logits_ + num_tokens_);
        weigh(all_weights_);
    }
    const std::vector<float>& all = all_weights_.empty() ? weights_ : all_weights_;
    total_ = sum_of(all.data(), (int64_t)all.size());
    if (options_.typical_p < 1.0f) keep_typical();

    const auto is_ranked = [&](int64_t i) { return i < num_ranked_ || (i < num_candidates_ && rank_more()); };
    int64_t kept = num_candidates_;
    double mass = total_;
    if (options_.top_p < 1.0f || options_.min_p > 0.0f) {
        // Both keep a front of the best, so the shorter one counts: the mass of top-p is of all candidates,
        // and the chance that min-p compares with is the best's.
        kept = 0, mass = 0.0;
        while ((kept == 0 || mass < options_.top_p * total_) && is_ranked(kept) &&
               (kept == 0 || weights_[(size_t)kept] >= options_.min_p * weights_[0]))
            mass += weights_[(size_t)kept++];
    }
    // XTC, "exclude top choices" (P. E. Weidmann, text-generation-webui, pull request 6335): now and then, of
    // those whose chance reaches the threshold leave only the last.
    int64_t first = 0;
    if (options_.xtc_probability > 0.0f &&
        uniform_for(kXtcDraw, options_, position) < (double)options_.xtc_probability) {
        const double least = (double)options_.xtc_threshold * mass;
        while (first + 1 < kept && is_ranked(first + 1) && weights_[(size_t)first + 1] >= least)
            mass -= weights_[(size_t)first++];
    }
    const double target = uniform_for(kTokenDraw, options_, position) * mass;
    double sum = 0.0;
    int32_t last = ranked_[(size_t)first].token;  // of those that can be drawn, should rounding miss the target
    for (int64_t i = first; i < kept && is_ranked(i) && weights_[(size_t)i] > 0.0f; ++i) {
        last = ranked_[(size_t)i].token;
        sum += weights_[(size_t)i];
        if (target < sum) break;
    }
    return last;
}

}  // namespace inferno

// How keys and values stand in a page of the KV cache: a type each, and the list. What kernels do with them is
// in body/float_cache.inl.h and body/q8_0_cache.inl.h.
//
// For one layer and head, a page of 64 positions holds keys, then values, in as many bytes each:
//
//   f16, f32   keys    [4][d][16 positions]        lanes are positions
//              values  [64][d]                     lanes are dimensions
//   q8_0       keys    [4][block] Q8_0::TileBlock  16 positions are the 16 rows of a packed matrix
//              values  [block] ValueBlock          64 scales, then 64 x 32 codes: lanes are dimensions
//
// with d = head_dim padded to 16 lanes, and blocks of 32 dimensions; what pads is zero.
#pragma once
#include "quant/q8_0.h"

namespace inferno {

constexpr int kPagePositions = 64;  // positions a page of the KV cache, and a step of the online softmax
constexpr int kKeyGroup = 16;       // positions side by side in a page's keys: one virtual lane each
static_assert(kKeyGroup == kTileRows);

template <class Number>
struct FloatCache {
    using Element = Number;
    INFERNO_INLINE int64_t half_bytes(int head_dim) {
        return (int64_t)kPagePositions * round_up(head_dim, 16) * (int64_t)sizeof(Element);
    }
};

struct F16Cache : FloatCache<f16> {
    // Larger keys and values are stored as this: a masked value is multiplied by zero, so it has to be finite.
    static constexpr float kLargest = 65504.0f;
};

struct F32Cache : FloatCache<float> {
    static constexpr float kLargest = 0x1.fffffep127f;
};

struct Q8_0Cache {
    // A key of 32 such numbers is spread to kLargest * 32 / 8: the largest code of the largest scale.
    static constexpr float kLargest = 127.0f * 65504.0f / 4.0f;

    using KeyBlock = Q8_0::TileBlock;
    // 32 dimensions of 64 positions.
    struct ValueBlock {
        f16 scale[kPagePositions];
        int8_t codes[kPagePositions][kBlock];
    };
    static_assert(sizeof(ValueBlock) == kPagePositions / kKeyGroup * sizeof(KeyBlock));

    INFERNO_INLINE int64_t half_bytes(int head_dim) { return ceil_div(head_dim, kBlock) * (int64_t)sizeof(ValueBlock); }
};

#define INFERNO_CACHE_TYPES(X) \
    X(F16Cache, f16)           \
    X(F32Cache, f32)           \
    X(Q8_0Cache, q8_0)

enum class CacheType : uint8_t {
#define X(Type, name) name,
    INFERNO_CACHE_TYPES(X)
#undef X
};

#define X(Type, name) +1
constexpr int kNumCacheTypes = 0 INFERNO_CACHE_TYPES(X);
#undef X

struct CacheTypeInfo {
    const char* name;
    int64_t half_bytes;  // keys, or values, of one page, layer and head
};

INFERNO_INLINE CacheTypeInfo cache_type_info(CacheType type, int head_dim) {
    switch (type) {
#define X(Type, name) \
    case CacheType::name: return {#name, Type::half_bytes(head_dim)};
        INFERNO_CACHE_TYPES(X)
#undef X
    }
    return {};
}

}  // namespace inferno

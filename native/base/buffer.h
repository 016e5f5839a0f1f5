// Aligned storage on huge pages where the system has them: a packed matrix read at memory speed touches
// a new 4 KB page every 200 ns, and 2 MB pages save the address look-ups.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#elif defined(_WIN32)
#include <malloc.h>
#endif

namespace inferno {

class Buffer {
public:
    Buffer() = default;
    explicit Buffer(size_t bytes) : size_(bytes) {
        if (bytes == 0) return;
        const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
        const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
#if defined(_WIN32)  // whose C library cannot free what is aligned as it frees the rest
        data_ = (uint8_t*)_aligned_malloc(rounded, alignment);
#else
        data_ = (uint8_t*)std::aligned_alloc(alignment, rounded);
#endif
        if (!data_) throw std::bad_alloc();
#if defined(__linux__)
        if (bytes >= kHugePage) madvise(data_, rounded, MADV_HUGEPAGE);  // a wish: failing is fine
#endif
    }
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Buffer() {
#if defined(_WIN32)
        _aligned_free(data_);
#else
        std::free(data_);
#endif
    }
    uint8_t* data() { return data_; }
    const uint8_t* data() const { return data_; }
    template <class T>
    T* as() {
        return (T*)data_;
    }
    template <class T>
    const T* as() const {
        return (const T*)data_;
    }
    size_t size() const { return size_; }

    // At least `bytes` of storage; the contents are lost when it grows.
    void reserve(size_t bytes) {
        if (bytes <= size_) return;
        *this = Buffer();  // before the new one is asked for
        *this = Buffer(bytes);
    }

private:
    static constexpr size_t kHugePage = size_t(1) << 21;
    void swap(Buffer& other) {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }
    uint8_t* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace inferno

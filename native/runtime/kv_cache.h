// Keys and values in pages of 64 positions, counted by reference.
//
//   page = [layer][kv_head] { keys of 64 positions | their values }, as kernels/cache_types.h has them
//
// A cache is a list of pages and a length. Forking shares the pages; whoever writes into a shared page
// copies it first. `Page` keeps one for other caches to adopt. Knows no tokens: which positions may be
// shared is decided in Python.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "kernels/table.h"

namespace inferno {

CacheType cache_type_named(const std::string& name);  // throws native-error

class PagePool {
public:
    PagePool(int layers, int kv_heads, int head_dim, CacheType type);

    CacheType type() const { return type_; }
    int64_t page_bytes() const { return page_bytes_; }
    int64_t bytes_per_position() const { return page_bytes_ / kPagePositions; }
    int64_t head_offset(int layer, int kv_head) const { return ((int64_t)layer * kv_heads_ + kv_head) * head_bytes_; }
    int64_t allocated_bytes() const;
    int64_t pages_in_use() const;
    // Free pages whose memory the system has given already, and one more of these: the first touch of a page
    // can take longer than a token, above all in a virtual machine. From any thread.
    int64_t ready_pages() const;
    void prepare_page();

private:
    friend class KvCache;
    friend class Page;
    int take();  // a page with one reference; throws out-of-memory
    void grow();
    void share(int page);
    void give_back(int page);
    bool is_shared(int page) const;
    uint8_t* data(int page) { return pages_[page]; }

    const CacheType type_;
    const int kv_heads_;
    const int64_t head_bytes_, page_bytes_;
    mutable std::mutex mutex_;     // sessions may be dropped from any thread
    std::vector<Buffer> slabs_;    // several pages each, so that they fill huge pages
    std::vector<uint8_t*> pages_;  // in slabs_
    std::vector<int> references_;
    std::vector<char> touched_;
    std::vector<int> free_;
};

// A page that outlives the cache that filled it.
class Page {
public:
    Page(std::shared_ptr<PagePool> pool, int number, uint8_t* address)
        : pool_(std::move(pool)), number_(number), address_(address) {
        pool_->share(number);
    }
    Page(const Page&) = delete;
    ~Page() { pool_->give_back(number_); }

    // Somebody else has it too, so that letting it go frees nothing.
    bool is_shared() const { return pool_->is_shared(number_); }

private:
    friend class KvCache;
    std::shared_ptr<PagePool> pool_;
    int number_;
    uint8_t* address_;
};

class KvCache {
public:
    explicit KvCache(std::shared_ptr<PagePool> pool) : pool_(std::move(pool)) {}
    KvCache(const KvCache& other);  // the fork
    KvCache& operator=(const KvCache&) = delete;
    ~KvCache() { truncate(0); }

    const std::shared_ptr<PagePool>& pool() const { return pool_; }
    int64_t length() const { return length_; }
    void truncate(int64_t length);
    // Share page `index`, which holds positions 64 index ...
    std::unique_ptr<Page> page(int64_t index) const;
    // Hold the first `length` positions of `pages`, and nothing else.
    void adopt(const std::vector<const Page*>& pages, int64_t length);

    // Make positions length() .. length() + count - 1 writable: own pages, none shared.
    void reserve(int64_t count);
    void advance(int64_t count) { length_ += count; }
    // Page p holds positions 64p ...; valid until the next reserve or truncate.
    const std::vector<uint8_t*>& pages() const { return addresses_; }

private:
    std::shared_ptr<PagePool> pool_;
    std::vector<int> pages_;
    std::vector<uint8_t*> addresses_;
    int64_t length_ = 0;
};

}  // namespace inferno

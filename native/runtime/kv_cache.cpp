#include "runtime/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace inferno {
namespace {

constexpr int64_t kSlabBytes = 16 << 20;  // eight huge pages: at most an eighth of one is left over

}  // namespace

CacheType cache_type_named(const std::string& name) {
    for (int i = 0; i < kNumCacheTypes; ++i)
        if (name == cache_type_info((CacheType)i, 1).name) return (CacheType)i;
    throw Error("native-error", "Unknown type of cache `" + name + "`");
}

PagePool::PagePool(int layers, int kv_heads, int head_dim, CacheType type)
    : type_(type),
      kv_heads_(kv_heads),
      head_bytes_(2 * cache_type_info(type, head_dim).half_bytes),
      page_bytes_(head_bytes_ * layers * kv_heads) {}

int64_t PagePool::allocated_bytes() const {
    const std::lock_guard lock(mutex_);
    return (int64_t)pages_.size() * page_bytes_;
}

int64_t PagePool::pages_in_use() const {
    const std::lock_guard lock(mutex_);
    return (int64_t)(pages_.size() - free_.size());
}

int PagePool::take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) grow();
    const int page = free_.back();
    free_.pop_back();
    references_[page] = 1;
    touched_[page] = true;
    return page;
}

int64_t PagePool::ready_pages() const {
    const std::lock_guard lock(mutex_);
    return std::count_if(free_.begin(), free_.end(), [&](int page) { return touched_[page]; });
}

void PagePool::prepare_page() {
    constexpr int64_t kSmallestSystemPage = 4096;
    int page;
    uint8_t* address;
    {
        const std::lock_guard lock(mutex_);
        const auto untouched = [&](int free) { return !touched_[free]; };
        auto found = std::find_if(free_.rbegin(), free_.rend(), untouched);
        if (found == free_.rend()) {
            grow();
            found = std::find_if(free_.rbegin(), free_.rend(), untouched);
        }
        page = *found;
        address = pages_[page];
        free_.erase(std::next(found).base());
        touched_[page] = true;
    }
    for (int64_t i = 0; i < page_bytes_; i += kSmallestSystemPage) ((volatile uint8_t*)address)[i] = 0;
    const std::lock_guard lock(mutex_);
    free_.push_back(page);  // the next to be taken
}

void PagePool::grow() {
    const int count = (int)std::max<int64_t>(1, kSlabBytes / page_bytes_);
    try {
        slabs_.emplace_back((size_t)(count * page_bytes_));
    } catch (const std::bad_alloc&) {
        throw Error("out-of-memory", "The KV cache could not grow by " + std::to_string(count * page_bytes_) + " bytes",
                    "end some sessions, or load with a smaller context");
    }
    // The system gives memory as it is touched, so take the pages of a slab from its beginning.
    for (int i = count - 1; i >= 0; --i) free_.push_back((int)pages_.size() + i);
    for (int i = 0; i < count; ++i) pages_.push_back(slabs_.back().data() + i * page_bytes_);
    references_.resize(pages_.size());
    touched_.resize(pages_.size());
}

void PagePool::share(int page) {
    const std::lock_guard lock(mutex_);
    ++references_[page];
}

void PagePool::give_back(int page) {
    const std::lock_guard lock(mutex_);
    if (--references_[page] == 0) free_.push_back(page);
}

bool PagePool::is_shared(int page) const {
    const std::lock_guard lock(mutex_);
    return references_[page] > 1;
}

KvCache::KvCache(const KvCache& other)
    : pool_(other.pool_), pages_(other.pages_), addresses_(other.addresses_), length_(other.length_) {
    for (const int page : pages_) pool_->share(page);
}

void KvCache::truncate(int64_t length) {
    check(length >= 0 && length <= length_, "a cache is cut to at most its length");
    length_ = length;
    while ((int64_t)pages_.size() > ceil_div(length, kPagePositions)) {
        pool_->give_back(pages_.back());
        pages_.pop_back();
        addresses_.pop_back();
    }
}

std::unique_ptr<Page> KvCache::page(int64_t index) const {
    check(index >= 0 && index < (int64_t)pages_.size(), "the cache has the page");
    return std::make_unique<Page>(pool_, pages_[(size_t)index], addresses_[(size_t)index]);
}

void KvCache::adopt(const std::vector<const Page*>& pages, int64_t length) {
    check(length >= 0 && ceil_div(length, kPagePositions) == (int64_t)pages.size(), "as many pages as hold the length");
    std::vector<int> numbers;
    std::vector<uint8_t*> addresses;
    for (const Page* page : pages) {
        check(page != nullptr && page->pool_ == pool_, "pages of one pool");
        numbers.push_back(page->number_);
        addresses.push_back(page->address_);
    }
    // Share before letting go: they may be the same.
    for (const int number : numbers) pool_->share(number);
    truncate(0);
    pages_ = std::move(numbers);
    addresses_ = std::move(addresses);
    length_ = length;
}

void KvCache::reserve(int64_t count) {
    // Only the page in which the new positions begin can hold older ones.
    if (count > 0 && length_ % kPagePositions != 0) {
        const size_t last = (size_t)(length_ / kPagePositions);
        if (pool_->is_shared(pages_[last])) {
            const int copy = pool_->take();
            std::memcpy(pool_->data(copy), addresses_[last], (size_t)pool_->page_bytes());
            pool_->give_back(pages_[last]);
            pages_[last] = copy;
            addresses_[last] = pool_->data(copy);
        }
    }
    while ((int64_t)pages_.size() < ceil_div(length_ + count, kPagePositions)) {
        const int page = pool_->take();
        pages_.push_back(page);
        addresses_.push_back(pool_->data(page));
    }
}

}  // namespace inferno

// The shapes in which numpy arrays cross the border.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <initializer_list>
#include <memory>

namespace inferno {

template <class T, class... Config>
using ConstArray = nanobind::ndarray<const T, nanobind::c_contig, nanobind::device::cpu, Config...>;

using FloatArray = ConstArray<float, nanobind::ndim<1>>;
using FloatMatrix = ConstArray<float, nanobind::ndim<2>>;
using TokenArray = ConstArray<int32_t, nanobind::ndim<1>>;
using MaskArray = ConstArray<uint32_t, nanobind::ndim<1>>;
using ByteArray = ConstArray<uint8_t, nanobind::ndim<1>>;

template <class T>
nanobind::ndarray<nanobind::numpy, T> to_numpy(std::unique_ptr<T[]> values, std::initializer_list<size_t> shape) {
    T* data = values.release();
    nanobind::capsule owner(data, [](void* p) noexcept { delete[] (T*)p; });
    return {data, shape, owner};
}

template <class T>
nanobind::ndarray<nanobind::numpy, T> copy_to_numpy(const T* values, std::initializer_list<size_t> shape) {
    size_t count = 1;
    for (const size_t n : shape) count *= n;
    auto copy = std::make_unique<T[]>(count);
    std::copy(values, values + count, copy.get());
    return to_numpy(std::move(copy), shape);
}

}  // namespace inferno

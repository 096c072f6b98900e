// SPDX-License-Identifier: Apache-2.0
#include "src/cuda/memory.h"

#include <fmt/format.h>

#include "src/cuda/check.h"

namespace octet {
namespace {

double gigabytes(size_t bytes) { return static_cast<double>(bytes) / 1e9; }

/// Allocates page-locked memory.
void* page_locked(size_t bytes) {
  void* data = nullptr;
  check_cuda(cudaMallocHost(&data, bytes),
             fmt::format("{:.3f} GB of page-locked host memory", gigabytes(bytes)).c_str());
  return data;
}

class PinnedMemory : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t) override { return page_locked(bytes); }  // page-aligned
  void do_deallocate(void* data, size_t, size_t) override { cudaFreeHost(data); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace

std::pmr::memory_resource* pinned_memory() {
  static PinnedMemory memory;
  return &memory;
}

DeviceBuffer::DeviceBuffer(size_t bytes, const std::string& what) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error: the caller may try a smaller batch
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw OutOfGpuMemory(fmt::format("{:.2f} GB for {} do not fit on the GPU: {:.2f} of {:.2f} GB are free",
                                     gigabytes(bytes), what, gigabytes(free), gigabytes(total)),
                         bytes, free);
  }
  check_cuda(status, what.c_str());
  data_.reset(static_cast<uint8_t*>(data));
}

void DeviceBuffer::Free::operator()(uint8_t* data) const { cudaFree(data); }

PinnedBuffer::PinnedBuffer(size_t bytes) : bytes_(bytes) {
  if (bytes > 0) data_.reset(static_cast<uint8_t*>(page_locked(bytes)));
}

void PinnedBuffer::Free::operator()(uint8_t* data) const { cudaFreeHost(data); }

bool is_page_locked(const void* host) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, host), "asking for the kind of host memory");
  return attributes.type == cudaMemoryTypeHost;
}

void copy_to_device(void* device, const void* host, size_t bytes, CudaStream stream) {
  check_cuda(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream), "copy to the GPU");
}

void copy_on_device(void* to, const void* from, size_t bytes, CudaStream stream) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copy on the GPU");
}

void copy_to_host(void* host, const void* device, size_t bytes, CudaStream stream) {
  check_cuda(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream), "copy from the GPU");
}

DeviceBuffer to_device(const std::vector<uint8_t>& bytes, const std::string& what, CudaStream stream) {
  DeviceBuffer buffer(bytes.size(), what);
  copy_to_device(buffer.data(), bytes.data(), bytes.size(), stream);
  check_cuda(cudaStreamSynchronize(stream), ("copying " + what + " to the GPU").c_str());
  return buffer;
}

void fill_device(void* device, int value, size_t bytes, CudaStream stream) {
  check_cuda(cudaMemsetAsync(device, value, bytes, stream), "fill GPU memory");
}

}  // namespace octet

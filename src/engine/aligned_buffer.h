// Memory of a program: allocated once, aligned, zeroed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace octet {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes)
      : data_(static_cast<uint8_t*>(::operator new (bytes, std::align_val_t{kAlignment}))), bytes_(bytes) {
    std::memset(data_.get(), 0, bytes);
  }
  uint8_t* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(uint8_t* data) const { ::operator delete (data, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t bytes_ = 0;
};

}  // namespace octet

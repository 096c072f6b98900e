// SPDX-License-Identifier: Apache-2.0
// Zip files, and the .npy files of numpy, byte by byte.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace octet::test {

using std::string_literals::operator""s;

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline uint32_t crc(const std::string& bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

struct ZipEntry {
  std::string name, contents;
  uint16_t method = 0;
};

/// A plain zip of stored entries.
inline std::string zip(const std::vector<ZipEntry>& entries) {
  std::string file, directory;
  for (const ZipEntry& e : entries) {
    const std::string sizes = raw(crc(e.contents)) + raw(static_cast<uint32_t>(e.contents.size())) +
                              raw(static_cast<uint32_t>(e.contents.size())) + raw(static_cast<uint16_t>(e.name.size()));
    const std::string start = raw(uint16_t{20}) + raw(uint16_t{0}) + raw(e.method) + raw(uint32_t{0}) + sizes;
    directory += "PK\x01\x02"s + raw(uint16_t{20}) + start + raw(uint16_t{0}) + raw(uint16_t{0}) + raw(uint16_t{0}) +
                 raw(uint16_t{0}) + raw(uint32_t{0}) + raw(static_cast<uint32_t>(file.size())) + e.name;
    file += "PK\x03\x04"s + start + raw(uint16_t{0}) + e.name + e.contents;
  }
  const auto count = static_cast<uint16_t>(entries.size());
  return file + directory + "PK\x05\x06"s + raw(uint32_t{0}) + raw(count) + raw(count) +
         raw(static_cast<uint32_t>(directory.size())) + raw(static_cast<uint32_t>(file.size())) + raw(uint16_t{0});
}

/// A .npy file of version 1 or 2 with this header, padded as numpy pads it, and these elements.
inline std::string npy(std::string header, const std::string& elements, char version = 1) {
  const size_t before = version == 1 ? 10 : 12;
  header.resize((before + header.size() + 1 + 63) / 64 * 64 - before - 1, ' ');
  header += '\n';
  const auto length = static_cast<uint32_t>(header.size());
  const std::string start = "\x93NUMPY"s + version + '\0';
  return start + (version == 1 ? raw(static_cast<uint16_t>(length)) : raw(length)) + header + elements;
}

/// A .npy file of float32 with this shape, "(2, 3)".
inline std::string npy_of_floats(const std::string& shape, const std::vector<float>& values) {
  std::string elements(values.size() * sizeof(float), '\0');
  if (!values.empty()) std::memcpy(elements.data(), values.data(), elements.size());
  return npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }", elements);
}

}  // namespace octet::test

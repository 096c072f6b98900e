// SPDX-License-Identifier: Apache-2.0
#include "src/recipe/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/data/decoders.h"
#include "src/data/transform.h"

namespace octet {
namespace {

/// One of the lists of images, and the transform they go through.
struct List {
  const char* key;
  const Dataset& dataset;
  const std::vector<size_t>& indices;
  const Transform& transform;
  bool training;
};

/// What the headers of a list's images say.
struct Found {
  long turned = 0;              ///< number of images that carry an orientation
  std::vector<size_t> sixteen;  ///< indices of images with 16-bit samples
};

/// Returns the image's header after checking its size; nullopt for an image that is no file.
std::optional<ImageHeader> checked_header(const List& list, size_t index) try {
  const std::optional<ImageHeader> header = list.dataset.header(index);
  if (!header) return header;
  check_size(size_as_read(*header, list.dataset.orientation()), list.transform, list.training);
  return header;
} catch (const Error& error) {
  const std::string name = list.dataset.describe(index), what = error.what();
  throw Error(error.code(), fmt::format("{}: {}", list.key, what.starts_with(name) ? what : name + ": " + what));
}

/// Reads all headers of a list. Throws the error of the first damaged file in the list, whichever thread meets one
/// first.
Found read_headers(const List& list, int workers) {
  Found found;
  constexpr size_t kMany = 50'000;
  std::optional<Progress> progress;
  if (list.indices.size() >= kMany)
    progress.emplace(fmt::format("{}: headers", list.key), static_cast<long>(list.indices.size()));
  std::mutex mutex;  // guards what follows, and `found`
  std::exception_ptr error;
  size_t error_at = list.indices.size();
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < list.indices.size();) {
      try {
        const std::optional<ImageHeader> header = checked_header(list, list.indices[i]);
        if (!header || (header->orientation == 1 && header->bits != 16)) continue;
        const std::lock_guard lock(mutex);
        if (header->orientation != 1) ++found.turned;
        if (header->bits == 16) found.sixteen.push_back(list.indices[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < error_at) error = std::current_exception(), error_at = i;
        next = list.indices.size();
      }
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < workers; ++i) threads.emplace_back(work);
  for (size_t done; progress && (done = next) < list.indices.size();) {
    progress->update(static_cast<long>(done));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  threads.clear();
  if (progress) progress->update(static_cast<long>(list.indices.size()));
  if (error) std::rethrow_exception(error);
  std::sort(found.sixteen.begin(), found.sixteen.end());
  return found;
}

/// Returns a note if 16-bit images, of which up to 16 are decoded, leave their upper bits unused; else "".
std::string sixteen_bits_note(const List& list, const std::vector<size_t>& sixteen) {
  constexpr size_t kLookedAt = 16;
  const size_t count = std::min(sixteen.size(), kLookedAt);
  int bits = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t index = sixteen[i * sixteen.size() / count];
    bits = std::max(bits, bits_in_use(*list.dataset.header(index), list.dataset.read(index)));
  }
  if (count == 0 || bits >= kFewestOf16) return "";
  return fmt::format(
      "{}: {} of {} images are 16-bit PNGs, and of {} looked at none uses more than {} bits: read as 16 they are "
      "nearly black; multiply their values by {}, or write them with 8 bits",
      list.key, with_thousands(static_cast<long>(sixteen.size())),
      with_thousands(static_cast<long>(list.indices.size())), count, bits, 1 << (16 - bits));
}

}  // namespace

std::vector<std::string> check_images(const RunData& data) {
  const List lists[] = {
      {"data.train", *data.train_set, data.train, data.train_transform, true},
      {"data.validation", *data.validation_set, data.validation, data.evaluation_transform, false},
      {"data.test", *data.test_set, data.test, data.evaluation_transform, false},
  };
  std::vector<std::string> notes;
  for (const List& list : lists) {
    const Found found = read_headers(list, std::max(1, data.workers));
    if (found.turned > 0) {
      const bool turns = list.dataset.orientation() == Orientation::exif;
      notes.push_back(
          fmt::format("{}: {} of {} images carry an EXIF orientation: {}", list.key, with_thousands(found.turned),
                      with_thousands(static_cast<long>(list.indices.size())),
                      turns ? "they are turned upright" : "they are read as stored (data.orientation: as_stored)"));
    }
    if (const std::string note = sixteen_bits_note(list, found.sixteen); !note.empty()) notes.push_back(note);
  }
  return notes;
}

}  // namespace octet

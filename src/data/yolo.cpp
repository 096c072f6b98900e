// SPDX-License-Identifier: Apache-2.0
#include "src/data/box_annotations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <sstream>

#include "src/base/error.h"
#include "src/data/decoders.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLines =
    "a box has 4 (CLASS X Y WIDTH HEIGHT), a polygon an even number from 6 on (CLASS X1 Y1 X2 Y2 X3 Y3 ...), all of "
    "them shares of the image, not pixels; key points are not read";

/// Returns the box that the numbers behind a line's class say, in shares of the image; throws Error(data).
Box shares_of(const std::vector<double>& numbers, const std::string& where) {
  const bool box = numbers.size() == 4;
  if (!box && (numbers.size() < 6 || numbers.size() % 2 != 0))
    throw data_error(fmt::format("{}: {} numbers behind the class; {}", where, numbers.size(), kLines));
  if (box && std::min(numbers[2], numbers[3]) < 0) throw data_error(where + ": a box of negative size");
  constexpr double kBeyond = 0.1;  // the border, as tools round and cut
  for (const double number : numbers)
    if (number < -kBeyond || number > 1 + kBeyond)
      throw data_error(fmt::format("{}: {} is no share of the image; {}", where, number, kLines));
  if (box) return {numbers[0] - numbers[2] / 2, numbers[1] - numbers[3] / 2, numbers[2], numbers[3]};
  double left = numbers[0], right = left, top = numbers[1], bottom = top;
  for (size_t i = 2; i < numbers.size(); i += 2) {
    left = std::min(left, numbers[i]), right = std::max(right, numbers[i]);
    top = std::min(top, numbers[i + 1]), bottom = std::max(bottom, numbers[i + 1]);
  }
  return {left, top, right - left, bottom - top};
}

/// Returns the label of a line; nullopt for a class that is left out.
std::optional<BoxLabel> label_of(const std::string& line, const ImageSize& image, size_t classes,
                                 const std::string& where, BoxFaults& faults) {
  std::istringstream words(line);
  std::vector<double> numbers;
  for (std::string word; words >> word;) {
    std::istringstream text(word);
    double number = 0;
    if (!(text >> number) || !text.eof() || !std::isfinite(number))
      throw data_error(fmt::format("{}: '{}' is no number", where, word));
    numbers.push_back(number);
  }
  const double class_index = numbers.front();
  if (!(class_index >= 0 && class_index < static_cast<double>(classes)) || class_index != std::floor(class_index)) {
    faults.leave_out("box", where, fmt::format("class {}, but there are {}, from 0", class_index, classes));
    return std::nullopt;
  }
  numbers.erase(numbers.begin());
  const Box shares = shares_of(numbers, where);
  const Box box{shares.x * image.width, shares.y * image.height, shares.width * image.width,
                shares.height * image.height};
  faults.look_at(box, image, where);
  return BoxLabel{box, static_cast<int>(class_index), box.area(), false};
}

}  // namespace

BoxAnnotations read_yolo(const Dataset& images, const FileTree& tree, const std::string& images_folder,
                         const std::string& labels_folder, const std::vector<std::string>& class_names,
                         bool leave_out) {
  const std::string from = tree.describe(images_folder), labels = tree.describe(labels_folder);
  BoxAnnotations result;
  for (size_t c = 0; c < class_names.size(); ++c)
    result.categories.push_back({static_cast<int64_t>(c), class_names[c]});
  BoxFaults faults(leave_out);
  long without = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    BoxAnnotations::AnnotatedImage image{
        static_cast<int64_t>(i), images.describe(i), size_as_read(*images.header(i), images.orientation()), {}};
    fs::path file = fs::path(labels_folder) / fs::path(image.file).lexically_relative(from);
    file.replace_extension(".txt");
    if (tree.is_file(file.string())) {
      const StoredFile stored = tree.file(file.string());
      std::istringstream lines(stored.read());
      int number = 0;
      for (std::string line; std::getline(lines, line);) {
        ++number;
        if (line.find_first_not_of(" \t\r\v\f") == std::string::npos) continue;
        const std::string where = fmt::format("{}:{}", stored.name, number);
        if (const auto label = label_of(line, image.size, class_names.size(), where, faults))
          image.labels.push_back(*label);
      }
    } else {
      ++without;
    }
    result.images.push_back(std::move(image));
  }
  if (without == static_cast<long>(images.size()))
    throw data_error(fmt::format("{}: none of the {} images in {} has a .txt there", labels, without, from));
  if (without > 0) result.notes.push_back(fmt::format("{} images have no .txt in {}: no boxes", without, labels));
  faults.tell(result.notes);
  return result;
}

}  // namespace octet

// SPDX-License-Identifier: Apache-2.0
// docs/OPERATORS.md, held to the operators' table and to the importer's list.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/net/onnx/rules.h"
#include "src/net/op_traits.h"
#include "src/net/zoo.h"
#include "tests/source_dir.h"

namespace octet {
namespace {

struct Row {
  std::string name, computes, onnx, int8, since, engines;
};

std::string page() { return read_file(source_dir() + "/docs/OPERATORS.md"); }

std::vector<Row> rows() {
  std::vector<Row> rows;
  std::istringstream lines(page());
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ") || line.starts_with("| operator ")) continue;
    std::vector<std::string> cells;
    for (size_t begin = 2, end; (end = line.find(" |", begin)) != std::string::npos; begin = end + 3)
      cells.push_back(line.substr(begin, end - begin));
    cells.resize(6);
    rows.push_back({cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]});
  }
  return rows;
}

/// The capitalized words of a text that name ONNX operators.
std::vector<std::string> operators_in(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::isalpha(static_cast<unsigned char>(c))) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  std::erase_if(words, [](const std::string& word) { return word.empty() || word[0] < 'A' || word[0] > 'Z'; });
  return words;
}

TEST(OperatorsPage, HasEveryOperatorOfRecipesInTheirOrder) {
  std::vector<std::string> written(written_ops().begin(), written_ops().end()), names;
  for (const Row& row : rows()) names.push_back(row.name);
  EXPECT_EQ(names, written);
}

TEST(OperatorsPage, SaysWhatTheTableOfOperatorsSays) {
  for (const Row& row : rows()) {
    const OpTraits& op = find_function(row.name) ? traits(Op::lookup) : traits(op_from_name(row.name));
    const bool activation = op.op == Op::relu || op.op == Op::relu6;  // its int8 form depends on what stands before
    EXPECT_FALSE(row.computes.empty()) << row.name;
    EXPECT_EQ(row.since, std::to_string(op.version)) << row.name;
    if (op.int8) {
      EXPECT_TRUE((row.int8 + ",").starts_with(std::string(int8_op_name(*op.int8)) + ",")) << row.name << row.int8;
    }
    const std::string native = !op.int8 && !activation ? "-"
                               : op.weighted           ? "reference, cpu, cuda, cudnn, cutlass"
                                                       : "reference, cpu, cuda";
    EXPECT_EQ(row.engines, native) << row.name;
  }
}

TEST(OperatorsPage, NamesEveryOnnxOperatorThatIsReadAndNoOther) {
  for (const Row& row : rows()) {
    EXPECT_FALSE(operators_in(row.onnx).empty()) << row.name;
    for (const std::string& name : operators_in(row.onnx)) EXPECT_TRUE(rules().contains(name)) << row.name << name;
  }
  const std::vector<std::string> named = operators_in(page());
  for (const auto& [name, rule] : rules())
    EXPECT_NE(std::find(named.begin(), named.end(), name), named.end()) << name << " is not on the page";
}

}  // namespace
}  // namespace octet

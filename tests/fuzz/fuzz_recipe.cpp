// SPDX-License-Identifier: Apache-2.0
// Any text is a recipe or an Error(usage); an accepted one reads back from what is written.
#include <cstdlib>

#include "src/base/error.h"
#include "src/recipe/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const octet::Recipe recipe = octet::parse_recipe(text, "fuzz.yaml");
    const std::string written = octet::write_recipe(recipe);
    if (octet::parse_recipe(written, "written.yaml") != recipe) std::abort();
  } catch (const octet::Error& error) {
    if (error.code() != octet::ExitCode::usage) std::abort();
  }
  try {
    octet::parse_recipe("data: {format: fashion_mnist}\nmodel: {name: small_cnn}", "fuzz.yaml", {text});
  } catch (const octet::Error&) {
  }
  return 0;
}

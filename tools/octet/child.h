// Another program with pipes to its stdin and stdout; its stderr is ours.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace octet::cli {

class Child {
 public:
  /// Looks for words[0] in PATH. Throws Error(data) with the system's reason when it cannot be started.
  explicit Child(std::vector<std::string> words);
  ~Child();  ///< closes its stdin, which it takes for the end, and waits for it
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // All of it, or Error(data): it ended in between. Error(interrupted) on Ctrl-C.
  void write(const void* data, size_t bytes);
  void read(void* data, size_t bytes);
  std::string read_line();  ///< without its end

 private:
  const std::string name_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;  ///< our ends: of its stdin, its stdout
};

}  // namespace octet::cli

// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime as a Program: a Python process that runs onnxruntime_codes.py.
#include "tools/octet/onnx_runtime.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "kernels/core/quantize.h"
#include "onnxruntime_codes.h"
#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/text.h"

namespace octet::cli {
namespace {

/// Another program with pipes to its stdin and stdout; its stderr is ours.
class Child {
 public:
  /// Starts words[0], which is looked up in PATH. Throws Error(data) with the system's reason if that fails.
  explicit Child(std::vector<std::string> words);
  ~Child();  ///< closes its stdin, upon which it ends, and waits for it
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // These transfer all bytes; they throw Error(data) if the program ended before, Error(interrupted) on Ctrl-C.
  void write(const void* data, size_t bytes);
  void read(void* data, size_t bytes);
  std::string read_line();  ///< without the line's end

 private:
  const std::string name_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;  ///< our ends of its stdin and stdout
};

struct Pipe {
  int read = -1, write = -1;
};

/// Opens a pipe that other started programs do not inherit.
Pipe open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw data_error(fmt::format("no pipe: {}", std::strerror(errno)));
  return {ends[0], ends[1]};
}

Child::Child(std::vector<std::string> words) : name_(words.front()) {
  const Pipe to = open_pipe(), from = open_pipe();
  in_ = to.write;
  out_ = from.read;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, to.read, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, from.write, STDOUT_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error = ::posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(to.read);
  ::close(from.write);
  if (error == 0) return;
  ::close(in_);
  ::close(out_);
  throw data_error(fmt::format("{} cannot be started: {}", name_, std::strerror(error)));
}

Child::~Child() {
  ::close(in_);
  ::close(out_);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Child::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::write(in_, from, bytes);
    throw_if_interrupted();
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw data_error(name_ + " has ended early");
    from += count;
    bytes -= static_cast<size_t>(count);
  }
}

void Child::read(void* data, size_t bytes) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::read(out_, to, bytes);
    throw_if_interrupted();
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw data_error(name_ + " has ended early");
    to += count;
    bytes -= static_cast<size_t>(count);
  }
}

std::string Child::read_line() {
  constexpr size_t kLongest = 4096;
  std::string line;
  for (char c = 0; line.size() < kLongest; line += c) {
    read(&c, 1);
    if (c == '\n') break;
  }
  return line;
}

/// Returns the Python that OCTET_PYTHON names (default: python3).
std::string python() {
  const char* set = std::getenv("OCTET_PYTHON");
  return set != nullptr && *set != '\0' ? set : "python3";
}

constexpr const char* kCure =
    "python3 -m venv V && V/bin/pip install onnxruntime, then OCTET_PYTHON=V/bin/python octet compare ...";

/// Throws Error(data) unless the started program says that it is a Python, before it gets a model.
void expect_python(Child& child) {
  std::string greeting;
  try {
    greeting = child.read_line();
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
  }
  if (!greeting.starts_with("python 3"))
    throw data_error(fmt::format("{} is no Python 3.8 or newer that works; OCTET_PYTHON must name one", python()));
}

/// ONNX Runtime in a Python process.
class OnnxRuntime : public Program {
 public:
  OnnxRuntime(const Int8Graph& graph, const ShownCodes& model, const std::string& name, int threads) try
      : graph_(graph), outputs_(model.outputs), name_(name), child_({python(), "-c", kOnnxRuntimeScript}) {
    expect_python(child_);
    std::vector<std::string> wanted;
    nlohmann::json shapes = nlohmann::json::array();
    for (size_t n = 0; n < outputs_.size(); ++n) {
      if (outputs_[n].empty()) continue;
      wanted.push_back(outputs_[n]);
      const Shape& shape = graph.nodes[n].shape;
      shapes.push_back({shape.h, shape.w, shape.c});
    }
    const Shape& in = graph.input_shape();
    const nlohmann::json asked = {
        {"model_bytes", model.model.size()}, {"outputs", wanted}, {"shapes", shapes}, {"image", {in.h, in.w, in.c}},
        {"optimize", name == kOnnxRuntime},  {"threads", threads}};
    const std::string line = asked.dump(-1, ' ', true) + "\n";
    child_.write(line.data(), line.size());
    child_.write(model.model.data(), model.model.size());
    const std::string answer = child_.read_line();
    constexpr std::string_view kReady = "ready ", kMissing = "missing ";
    if (answer.starts_with(kMissing))
      throw data_error(fmt::format("{}: {}; {}", python(), answer.substr(kMissing.size()), kCure));
    if (!answer.starts_with(kReady)) throw data_error(fmt::format("{} says: {}", name, answer));
    say(fmt::format("{}: ONNX Runtime {}", name, answer.substr(kReady.size())));
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
    const std::string what = error.what();
    const bool cured = what.find(kCure) != std::string::npos || what.starts_with(name);
    throw data_error(fmt::format("--against {}: {}{}{}", name, what, cured ? "" : "; ", cured ? "" : kCure));
  }

  void run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) override {
    send(images, batch);
    for (size_t n = 0; n < outputs_.size(); ++n) {
      if (outputs_[n].empty()) continue;
      const std::vector<uint8_t> given = receive(graph_.nodes[n], outputs_[n], batch);
      for (size_t i = 0; i < graph_.outputs.size(); ++i)
        if (graph_.outputs[i] == static_cast<int>(n)) std::memcpy(outputs[i], given.data(), given.size());
      if (tap) tap(static_cast<int>(n), given.data(), given.size());
    }
  }

  std::vector<LayerInfo> layers() const override { return {}; }
  size_t arena_bytes() const override { return 0; }

 private:
  void send(const uint8_t* images, int batch) {
    const size_t channels = static_cast<size_t>(graph_.input_shape().c);
    const size_t count = static_cast<size_t>(graph_.input_shape().elements()) * static_cast<size_t>(batch);
    std::vector<float> reals(count);
    for (size_t i = 0; i < count; ++i) {
      const size_t c = i % channels;
      reals[i] = normalize_pixel(images[i], graph_.preprocessing.mean[c], graph_.preprocessing.std[c]);
    }
    const int64_t size = batch;
    child_.write(&size, sizeof(size));
    child_.write(reals.data(), reals.size() * sizeof(float));
  }

  std::vector<uint8_t> receive(const Int8Node& node, const std::string& output, int batch) {
    int64_t bytes = 0;
    child_.read(&bytes, sizeof(bytes));
    if (bytes < 0) throw data_error(fmt::format("{} says: {}", name_, child_.read_line()));
    std::vector<uint8_t> values(node.image_bytes() * static_cast<size_t>(batch));
    if (bytes != static_cast<int64_t>(values.size()))
      throw data_error(fmt::format("{} gives {} bytes of '{}' for {}, octet has {}", name_, bytes, output,
                                   counted(batch, "image"), values.size()));
    child_.read(values.data(), values.size());
    return values;
  }

  const Int8Graph& graph_;
  const std::vector<std::string> outputs_;
  const std::string name_;
  Child child_;
};

}  // namespace

std::unique_ptr<Program> start_onnx_runtime(const Int8Graph& graph, const ShownCodes& model, const std::string& name,
                                            int threads) {
  return std::make_unique<OnnxRuntime>(graph, model, name, threads);
}

std::vector<bool> shown_by(const ShownCodes& model) {
  std::vector<bool> shown;
  for (const std::string& output : model.outputs) shown.push_back(!output.empty());
  return shown;
}

}  // namespace octet::cli

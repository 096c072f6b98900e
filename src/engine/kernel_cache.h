// Which kernel was the fastest, kept from one process to the next: a folder with a small file a choice. A file that is
// damaged, of another choice, or that cannot be read or written counts as none: then the kernels are measured again.
#pragma once

#include <optional>
#include <string>

namespace octet {

/// "$XDG_CACHE_HOME/octet/kernels", or "~/.cache/octet/kernels"; "" when neither variable holds an absolute path.
std::string kernel_cache_folder();

/// The folder in which this process keeps choices; "", as it begins, for none: programs of tests measure beside each
/// other, which nobody should keep. What is compiled from then on looks there; any thread may set it.
void set_kernel_cache(const std::string& folder);
std::string kernel_cache();

/// The name kept under `key`: everything that the choice depends on, on one line.
std::optional<std::string> cached_kernel(const std::string& folder, const std::string& key);

/// Keeps it. Processes that keep the same at once leave one whole file.
void cache_kernel(const std::string& folder, const std::string& key, const std::string& name);

}  // namespace octet

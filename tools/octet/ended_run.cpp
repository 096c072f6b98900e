#include "tools/octet/ended_run.h"

#include <fmt/format.h>

#include <filesystem>

#include "src/common/error.h"
#include "src/common/files.h"
#include "src/common/folder_lock.h"
#include "src/common/progress.h"
#include "src/common/shell.h"
#include "src/report/report.h"

namespace octet::cli {

void tell_ended_run(const RunDirectory& directory) try {
  const std::string page = directory.report_html();
  if (!std::filesystem::exists(page)) return;
  const std::optional<std::string> ended = ended_page(
      read_file(page), fmt::format("Stopped: its process ended without a word (killed, out of memory, or the machine "
                                   "went down); to go on: octet train {} --resume",
                                   shell_word(directory.root)));
  if (!ended || FolderLock::taken(directory.root) != FolderLock::Taken::no) return;
  write_file_atomically(page, *ended);
  say(fmt::format("{}: this run's process ended without a word; its page says so now", directory.root));
} catch (const Error&) {  // what the user asked for does not depend on the page
}

}  // namespace octet::cli

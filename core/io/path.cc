#include "core/io/path.h"

#include <algorithm>
#include <string>

#include <boost/filesystem/operations.hpp>

#include "core/base/quote.h"

namespace ckpt {

Result<Path> JoinInside(const Path& directory, std::string_view name) {
  const auto refuse = [&](std::string_view rule) {
    return Error(ErrorKind::kUnsafePath, rule).Actual(Quote(name));
  };
  if (name.find('\0') != std::string_view::npos) return refuse("path contains a NUL character");
  if (name.empty()) return refuse("path is empty: it names the directory itself");
  if (name.front() == '/') return refuse("path is absolute");
  // Do not iterate over a Path: Boost ends the process if memory runs out there.
  bool names_something = false;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part == "..") return refuse("path leaves the checkpoint's directory");
    names_something = names_something || (part != "." && !part.empty());
    begin = end + 1;
  }
  if (!names_something) return refuse("path names the directory itself");
  return directory / Path(std::string(name));
}

Path WithoutTrailingSlash(const Path& path) {
  Path clean = path;
  while (clean.has_parent_path() && (clean.filename().empty() || clean.filename() == ".")) {
    clean = clean.parent_path();
  }
  return clean;
}

Path CanonicalPath(const Path& path) {
  boost::system::error_code error;
  const Path canonical = boost::filesystem::weakly_canonical(path, error);
  if (!error) return WithoutTrailingSlash(canonical);
  return WithoutTrailingSlash(boost::filesystem::absolute(path).lexically_normal());
}

bool IsWithin(const Path& path, const Path& directory) {
  const auto [in_path, in_directory] =
      std::mismatch(path.begin(), path.end(), directory.begin(), directory.end());
  return in_directory == directory.end();
}

}  // namespace ckpt
